//! What a signature costs, by kind of issuer key, through the same call that the engine makes.
#![expect(clippy::unwrap_used, reason = "a bench fails by panicking")]

use std::hint::black_box;
use std::num::NonZeroUsize;
use std::os::unix::fs::PermissionsExt as _;

use countersign_authority::{IssuerId, KeyStore as _};
use countersign_keys::FileKeys;
use countersign_testkit::keys;
use criterion::{Criterion, criterion_group, criterion_main};

fn signing(c: &mut Criterion) {
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let mut store = FileKeys::new(NonZeroUsize::MIN);
    for key in [
        keys::p256_a(),
        keys::p384(),
        keys::ed25519(),
        keys::rsa2048_a(),
        keys::rsa4096_a(),
    ] {
        let path = folder.path().join(key.name());
        std::fs::write(&path, key.pkcs8_pem()).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        let issuer = IssuerId::parse(key.name()).unwrap();
        store.load(issuer.clone(), &path).unwrap();
        let public_key = store.public_key(&issuer).unwrap();
        let message = vec![7u8; 600];
        c.bench_function(&format!("sign {}", key.name()), |b| {
            b.iter(|| {
                runtime
                    .block_on(store.sign(&issuer, &public_key, black_box(message.clone())))
                    .unwrap()
            });
        });
    }
}

criterion_group!(benches, signing);
criterion_main!(benches);
