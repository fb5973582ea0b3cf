//! Many tokens at once.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::time::Duration;

use countersign_testkit::deadline::run_with_deadline;

use super::*;
use crate::installation::binary;

#[test]
fn a_list_with_a_bad_line_mints_nothing() {
    let world = World::start(ENABLED);
    let list = world.file(
        "hosts.txt",
        "a.example.com\nb c\nd.example.com\n*.x.example.com\na.example.com\n",
    );
    let refused = world.refused(1, &["create", "--from", &list]);
    assert_eq!(
        refused,
        format!(
            "line 2: \"b c\" cannot be a name: Subject hostname format is invalid\n\
             line 4: \"*.x.example.com\" is a pattern: say so with --glob (in a file: the column glob), or write one name\n\
             line 5: a.example.com stands on line 1 already: of two tokens for one name only the second would be good\n\
             countersign: 3 rows of {list} cannot be minted; nothing was minted\n"
        )
    );
    assert_eq!(world.items(&[]), Vec::<Value>::new());
    let gone = world.refused(1, &["create", "--from", "/nonexistent"]);
    assert!(gone.contains("cannot read /nonexistent"), "{gone}");
}

#[test]
fn many_tokens_are_printed_line_by_line() {
    let world = World::start(ENABLED);
    let table = "certname,glob,ttl,max_uses,note\n\
                 a.example.com,,1h,,\"rack 7, top\"\n\
                 *.dmz.example.com,yes,,2,\n";
    let table = world.file("hosts.csv", table);
    let printed = world.well(&["create", "--from", &table, "--ttl", "3h"]);
    assert_eq!(printed.stderr, "2 tokens minted\n");
    let mut reader = csv::Reader::from_reader(printed.stdout.as_bytes());
    assert_eq!(
        reader.headers().unwrap(),
        vec!["certname", "id", "token", "expires_at"]
    );
    let rows: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
    assert_eq!(
        (&rows[0][0], &rows[1][0]),
        ("a.example.com", "*.dmz.example.com")
    );
    for row in &rows {
        assert_eq!(TokenText::parse(&row[2]).unwrap().id().as_str(), &row[1]);
    }
    assert_eq!(world.json(&["show", &rows[0][1]])["note"], "rack 7, top");
    assert_eq!(world.json(&["show", &rows[1][1]])["max_uses"], 2);
    assert_eq!(world.enrol("x.dmz.example.com", &rows[1][2]).status, 200);

    let mut command = Command::new("sh");
    command
        .args(["-c", r#"printf '# hosts\nb.example.com\nc.example.com\n' | "$0" token create --from - --format json --data "$DATA""#])
        .arg(binary())
        .env("DATA", world.installation.data());
    let printed = run_with_deadline(command, Duration::from_secs(60)).unwrap();
    assert!(printed.success(), "{printed}");
    let objects: Vec<Value> = printed
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(
        (&objects[0]["certname"], &objects[1]["certname"]),
        (&"b.example.com".into(), &"c.example.com".into())
    );
}

#[test]
fn a_failure_says_what_was_minted_and_the_rest_is_taken_up() {
    let world = World::start(ENABLED);
    let folder = world.place("tokens");
    let dir = folder.to_str().unwrap();
    let table = |ttl: &str| {
        format!(
            "certname,ttl\na.example.com,\nb.example.com,1h\nc.example.com,{ttl}\nd.example.com,\n"
        )
    };
    let list = world.file("hosts.csv", &table("8d"));
    let failed = world.refused(1, &["create", "--from", &list, "--output-dir", dir]);
    let said = "countersign: 2 of 4 tokens were minted and stay good, line 2 (a.example.com) to line 3 (b.example.com); for the rest run \
                the command again with --resume: line 4, c.example.com: ttl_seconds: ";
    assert!(failed.starts_with(said), "{failed}");
    let files = || {
        let mut names: Vec<String> = fs::read_dir(&folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    };
    assert_eq!(files(), ["a.example.com.yaml", "b.example.com.yaml"]);
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(
        (mode(&folder), mode(&folder.join("a.example.com.yaml"))),
        (0o700, 0o600)
    );
    let written = fs::read_to_string(folder.join("a.example.com.yaml")).unwrap();
    let read: Value = serde_saphyr::from_str(&written).unwrap();
    let token = read["custom_attributes"]["1.2.840.113549.1.9.7"]
        .as_str()
        .unwrap();
    assert_eq!(world.enrol("a.example.com", token).status, 200);

    world.file("hosts.csv", &table("2d"));
    let there = world.refused(1, &["create", "--from", &list, "--output-dir", dir]);
    assert!(
        there.contains(
            "a.example.com.yaml exists already: remove it, or skip such rows with --resume"
        ),
        "{there}"
    );
    assert_eq!(world.items(&[]).len(), 2, "nothing was minted");
    let resumed = world.well(&["create", "--from", &list, "--output-dir", dir, "--resume"]);
    assert_eq!(resumed.stdout, "");
    assert_eq!(
        resumed.stderr,
        "2 tokens minted, 2 skipped because their files are there\n"
    );
    assert_eq!(files().len(), 4);
    let bare = world.well(&[
        "create",
        "--from",
        &list,
        "--output-dir",
        dir,
        "--format",
        "bare",
    ]);
    assert_eq!(bare.stderr, "4 tokens minted\n");
    let token = fs::read_to_string(folder.join("d.example.com.token")).unwrap();
    TokenText::parse(token.trim_end()).unwrap();
}

#[test]
fn a_token_that_nobody_reads_is_revoked() {
    let world = World::start(ENABLED);
    let mut command = Command::new("sh");
    // A device that is always full, and a reader who is gone.
    let script = r#""$0" token create a.example.com --data "$DATA" > /dev/full; echo $?
        { sleep 0.1; "$0" token create b.example.com --data "$DATA"; echo $? >&2; } | true"#;
    command
        .args(["-c", script])
        .arg(binary())
        .env("DATA", world.installation.data());
    let ended = run_with_deadline(command, Duration::from_secs(60)).unwrap();
    assert_eq!(ended.stdout, "1\n", "{ended}");
    assert_eq!(
        ended
            .stderr
            .matches("was revoked, because nobody got it")
            .count(),
        2,
        "{ended}"
    );
    assert_eq!(world.items(&["--status", "revoked"]).len(), 2);
    assert_eq!(world.items(&["--status", "active"]).len(), 0);
}
