// The Go controller, pinned: its CustomResourceDefinition is what ours is compared with (`tests/tests/crd.rs`). Nothing of it
// is built.
module appwrapper.test/controlplane/appwrapper

go 1.24.0

require github.com/project-codeflare/appwrapper v1.2.1
