//! tmp
#[tokio::main]
async fn main() {
    let c = appwrapper_testkit::cluster::Cluster::attach("dev").await.unwrap();
    for f in std::env::args().skip(1) {
        let r =
            appwrapper_testkit::cluster::apply::apply_yaml(&c.client(), &std::fs::read_to_string(&f).unwrap()).await;
        match r {
            Ok(o) => println!("{f}: {} objects", o.len()),
            Err(e) => println!("{f}: {e:#}"),
        }
    }
}
