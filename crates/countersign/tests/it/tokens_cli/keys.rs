//! The keys under which tokens are recorded.

use std::os::unix::fs::PermissionsExt as _;

use super::*;

impl World {
    fn key(&self, name: &str, content: &str, mode: u32) {
        let path = self.place(name);
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }

    /// A configuration with keys in the folder beside the data directory.
    fn keyed(&self, current: &str, old: &[&str]) -> String {
        let file = |name: &str| format!("{{file: {}}}", self.place(name).display());
        let old: Vec<String> = old.iter().map(|name| file(name)).collect();
        let (current, old) = (file(current), old.join(", "));
        format!("tokens: {{enabled: true, mac_key: {current}, mac_keys_old: [{old}]}}\n")
    }
}

fn secret(letter: &str) -> String {
    letter.repeat(64) + "\n"
}

#[test]
fn a_server_does_not_start_without_its_key() {
    let mut world = World::start("{}\n");
    world.key("good", &secret("g"), 0o600);
    world.key("short", "shortshort\n", 0o600);
    world.key("open", &secret("o"), 0o640);
    for (current, old, part) in [
        ("gone", &[][..], "tokens.mac_key: there is no file "),
        (
            "short",
            &[],
            "short holds 10 octets, and a key has at least 32: make one with ",
        ),
        (
            "open",
            &[],
            "is accessible by group or others (mode 0640); run `chmod 600 ",
        ),
        (
            "good",
            &["gone"],
            "tokens.mac_keys_old[0]: there is no file ",
        ),
    ] {
        let config = world.keyed(current, old);
        let said = world.refused_start(&config);
        assert!(said.contains(part), "{said}");
        assert!(!said.contains("shortshort"), "{said}");
        // With tokens off the key is of no use, and its loss of no harm.
        let file = world.file(
            "countersign.yaml",
            &config.replace("enabled: true", "enabled: false"),
        );
        let mut server = world.installation.serve(&["--config", &file]);
        server.stop().unwrap();
    }
    let config = world.keyed("good", &[]);
    world.restart(&config);
    world.mint(&["a.example.com"]);
    let file = world.file("countersign.yaml", &config);
    let arguments = world
        .installation
        .serve_arguments(&["--config", &file, "--print-config"]);
    let printed = run(&[&["serve"], &arguments[..]].concat());
    assert!(
        printed.success() && printed.stdout.contains("mac_key"),
        "{printed}"
    );
    assert!(!printed.stdout.contains("gggg"), "{printed}");
}

#[test]
fn keys_change_and_tokens_of_named_ones_stay_good() {
    let mut world = World::start("{}\n");
    world.key("one", &secret("1"), 0o600);
    world.key("two", &secret("2"), 0o600);
    world.restart(&world.keyed("one", &[]));
    let first = world.mint(&["a.example.com"]);
    let second = world.mint(&["b.example.com"]);
    world.restart(&world.keyed("two", &["one"]));
    assert_eq!(world.enrol("a.example.com", first.expose()).status, 200);
    assert!(world.is_signed("a.example.com"));
    let third = world.mint(&["c.example.com"]);

    world.restart(&world.keyed("two", &[]));
    assert_eq!(
        world.enrol("b.example.com", second.expose()).status,
        403,
        "its key is gone"
    );
    let reason = |name: &str| {
        let listed = world.installation.json(&[
            "csr",
            "list",
            "--all",
            "--reason",
            "token_unknown",
            "-o",
            "json",
        ]);
        let items = listed["items"].as_array().unwrap().clone();
        items.iter().filter(|item| item["name"] == name).count()
    };
    assert_eq!(reason("b.example.com"), 1);
    assert_eq!(world.items(&[]).len(), 3, "it is listed all the same");
    world.well(&["revoke", second.id().as_str()]);
    assert_eq!(world.enrol("c.example.com", third.expose()).status, 200);
    assert!(world.is_signed("c.example.com"));
}

#[test]
fn a_reload_takes_keys_over_or_leaves_everything_as_it_was() {
    let mut world = World::start("{}\n");
    world.key("one", &secret("1"), 0o600);
    world.key("two", &secret("2"), 0o600);
    world.restart(&world.keyed("one", &[]));
    let first = world.mint(&["a.example.com"]);
    let reload = |world: &mut World, config: &str, said: &str| {
        world.file("countersign.yaml", config);
        let server = world.server.as_mut().unwrap();
        let before = server.log().len();
        server.hang_up();
        let heard = |log: &str| log.get(before..).unwrap_or_default().contains(said);
        assert!(server.wait_for_log(heard), "{said} in\n{server}");
    };
    // The old key is forgotten by mistake; the new one is missing by mistake.
    let missing = world.keyed("three", &["one"]);
    reload(&mut world, &missing, "was not reloaded");
    assert!(
        world
            .server()
            .log()
            .contains("tokens.mac_key: there is no file ")
    );
    let second = world.mint(&["b.example.com"]);
    let rotated = world.keyed("two", &["one"]);
    reload(&mut world, &rotated, "the configuration was reloaded");
    let third = world.mint(&["c.example.com"]);
    for (name, token) in [
        ("a.example.com", &first),
        ("b.example.com", &second),
        ("c.example.com", &third),
    ] {
        assert_eq!(world.enrol(name, token.expose()).status, 200, "{name}");
        assert!(world.is_signed(name), "{name}");
    }
    reload(
        &mut world,
        "tokens: {enabled: false}\n",
        "the configuration was reloaded",
    );
    let off = world.refused(1, &["create", "d.example.com"]);
    assert!(off.contains("not enabled"), "{off}");
    let log = world.server().log();
    assert!(!log.contains("1111") && !log.contains("2222"), "{log}");
}
