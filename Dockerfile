# One image, two programs: /appwrapper-controller and /appwrapper-webhook. The C library of the runtime image must not be
# older than that of the build image.
ARG BUILD_IMAGE=rust:1.89-slim-bookworm
ARG RUNTIME_IMAGE=gcr.io/distroless/cc-debian12:nonroot

FROM ${BUILD_IMAGE} AS build
WORKDIR /src
COPY . .
ARG REVISION=unknown
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target,sharing=locked \
    APPWRAPPER_REVISION="${REVISION}" APPWRAPPER_RUSTC="$(rustc --version)" \
    cargo build --locked --release --package appwrapper-controller --package appwrapper-webhook && \
    mkdir /programs && \
    cp target/release/appwrapper-controller target/release/appwrapper-webhook /programs/

FROM ${RUNTIME_IMAGE} AS runtime
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="appwrapper" \
      org.opencontainers.image.description="Controller and admission webhook of AppWrappers" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build --chown=0:0 /programs/ /
# By number: Kubernetes cannot tell whether a name is root.
USER 65532:65532
ENTRYPOINT ["/appwrapper-controller"]
