//! A full disk and a database that cannot be written: a clear 5xx, nothing half-written, and service
//! returns when the fault ends.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use countersign_testkit::deadline::run_with_deadline;
use countersign_testkit::server_process::ServerProcess;

use crate::site::{COUNTERSIGN, JSON, REQUESTS, Site, TEXT, kubernetes_request, puppet_request};

/// What a client sees of a fault of the store: unavailable, come back, and no word about our disks.
fn assert_unavailable(site: &Site, name: &str) {
    let put = site.ask(name);
    assert_eq!(put.status, 503, "{}", put.text());
    assert!(put.header("retry-after").is_some());
    let object = kubernetes_request(name).to_string();
    let post = site
        .kubernetes_admin()
        .call("POST", REQUESTS, &[JSON], object.as_bytes())
        .unwrap();
    assert_eq!(post.status, 503, "{}", post.text());
    assert!(
        post.text().contains("ServiceUnavailable"),
        "{}",
        post.text()
    );
}

/// Nothing of what was refused is there, and the same requests now succeed.
fn assert_served(site: &Site, name: &str) {
    let mut puppet = site.anonymous().connect().unwrap();
    let mut kubernetes = site.kubernetes_admin().connect().unwrap();
    let certificate = format!("/puppet-ca/v1/certificate/{name}");
    let object = format!("{REQUESTS}/{name}");
    assert_eq!(
        puppet.call("GET", &certificate, &[], b"").unwrap().status,
        404
    );
    assert_eq!(
        kubernetes.call("GET", &object, &[], b"").unwrap().status,
        404
    );

    let path = format!("/puppet-ca/v1/certificate_request/{name}");
    let put = puppet
        .call("PUT", &path, &[TEXT], puppet_request(name).as_bytes())
        .unwrap();
    assert_eq!(put.status, 200, "{}", put.text());
    assert_eq!(
        puppet.call("GET", &certificate, &[], b"").unwrap().status,
        200
    );
    let body = kubernetes_request(name).to_string();
    let post = kubernetes
        .call("POST", REQUESTS, &[JSON], body.as_bytes())
        .unwrap();
    assert_eq!(post.status, 201, "{}", post.text());
}

#[test]
fn a_read_only_database_refuses_and_recovers() {
    let site = Site::start(&["--autosign", "true"]);
    assert_served(&site, "before");
    // SQLite refuses to write a database whose file was moved away: as read-only as it gets for root.
    let (here, away) = (
        site.data().join("countersign.db"),
        site.data().join("moved.db"),
    );
    std::fs::rename(&here, &away).unwrap();
    assert_unavailable(&site, "during");
    std::fs::rename(&away, &here).unwrap();
    assert_served(&site, "during");
}

#[test]
fn a_full_disk_refuses_and_recovers() {
    let disk = SmallDisk::mount();
    let data = disk.path().join("data");
    let mut command = disk.enter(COUNTERSIGN);
    command.args(["serve", "--data"]).arg(&data);
    command.args([
        "--listen",
        "127.0.0.1:0",
        "--kubernetes-listen",
        "127.0.0.1:0",
    ]);
    command.args(["--hostname", "localhost", "--autosign", "true"]);
    let server = ServerProcess::start_command(command).unwrap_or_else(|fault| panic!("{fault}"));
    let site = Site::around(disk.seen_from_outside("data"), server);
    assert_served(&site, "before");

    let filler = disk.fill();
    assert_unavailable_eventually(&site);
    std::fs::remove_file(filler).unwrap();
    assert_served(&site, "after");
}

/// SQLite writes into pages that its log already owns before it needs a new one, so the first request
/// may still fit; what is acknowledged until then counts as much as ever.
fn assert_unavailable_eventually(site: &Site) {
    let mut acknowledged: Vec<String> = Vec::new();
    for n in 0..10_000 {
        let name = format!("full-{n}");
        let put = site.ask(&name);
        if put.status == 503 {
            assert_unavailable(site, "during");
            for name in &acknowledged {
                let got = site.certificate(name);
                assert_eq!(got.status, 200, "{name} was acknowledged");
            }
            return;
        }
        assert_eq!(put.status, 200, "{}", put.text());
        acknowledged.push(name);
    }
    panic!("the disk never became full");
}

/// A file system of a few MiB in a mount namespace of its own, held by a sleeping process.
struct SmallDisk {
    holder: std::process::Child,
    mount_point: tempfile::TempDir,
}

impl SmallDisk {
    fn mount() -> Self {
        let mount_point = tempfile::tempdir().unwrap();
        let mut command = Command::new("unshare");
        // Root needs only the mount namespace; anybody else also a user namespace to be root in.
        if !rustix::process::geteuid().is_root() {
            command.args(["--user", "--map-root-user"]);
        }
        command.args([
            "--mount",
            "sh",
            "-c",
            "mount -t tmpfs -o size=4m,mode=0700 none \"$0\" && echo mounted && exec sleep 600",
        ]);
        command
            .arg(mount_point.path())
            .stdout(std::process::Stdio::piped())
            .process_group(0);
        let mut holder = command.spawn().unwrap();
        let mut line = String::new();
        let stdout = holder.stdout.take().unwrap();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut line).unwrap();
        assert_eq!(
            line, "mounted\n",
            "a small file system cannot be mounted here"
        );
        Self {
            holder,
            mount_point,
        }
    }

    fn path(&self) -> &Path {
        self.mount_point.path()
    }

    /// The same folder through the holder's eyes, for those outside the namespace.
    fn seen_from_outside(&self, name: &str) -> PathBuf {
        let inside = self.mount_point.path().strip_prefix("/").unwrap();
        PathBuf::from(format!("/proc/{}/root", self.holder.id()))
            .join(inside)
            .join(name)
    }

    /// A command that runs inside.
    fn enter(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--mount", "--target", &self.holder.id().to_string()]);
        if !rustix::process::geteuid().is_root() {
            command.args(["--user", "--preserve-credentials"]);
        }
        command.arg("--").arg(program);
        command
    }

    /// Fills what is left, and returns the file that does.
    fn fill(&self) -> PathBuf {
        let path = self.seen_from_outside("filler");
        let mut command = Command::new("dd");
        command
            .args(["if=/dev/zero", "bs=4096"])
            .arg(format!("of={}", path.display()));
        let finished = run_with_deadline(command, Duration::from_secs(60)).unwrap();
        assert!(finished.stderr.contains("No space left"), "{finished}");
        path
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        drop(self.holder.kill());
        drop(self.holder.wait());
    }
}
