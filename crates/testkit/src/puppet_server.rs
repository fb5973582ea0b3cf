//! A real Puppet Server with a life of its own: configuration, authority and state are below one given folder.
//!
//! It runs in the root of its release, with the authorisation rules, routes and services that its package ships. A start
//! takes 20 seconds and more, so tests share one where they can.

use std::fmt;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use crate::counterparts::{Counterpart, MissingCounterpart, Release};
use crate::https::HttpsClient;
use crate::puppetserver_ca::PuppetserverCa;
use crate::server_process::{ServerFault, ServerProcess};

/// A running Puppet Server. Dropping it stops it.
#[derive(Debug)]
pub struct PuppetServer {
    folder: PathBuf,
    settings: PuppetServerSettings,
    port: u16,
    process: ServerProcess,
}

/// What differs between the servers of tests.
#[derive(Clone, Debug)]
pub struct PuppetServerSettings {
    /// Where the authority is, or will be: Puppet Server makes one (RSA 2048) at its first start.
    pub cadir: PathBuf,
    /// The server's own name, whose certificate carries `pp_cli_auth`; it also answers as `localhost`.
    pub certname: String,
    /// `autosign` of `puppet.conf`.
    pub autosign: String,
    /// Further lines for the section `[server]` of `puppet.conf`.
    pub puppet_conf: String,
    /// Settings of `ca.conf`, without the braces around them.
    pub ca_conf: String,
    /// Arguments of the Java virtual machine.
    pub java_args: String,
}

/// Why there is no running Puppet Server.
#[derive(Debug, thiserror::Error)]
pub enum PuppetServerFault {
    /// It was not prepared.
    #[error(transparent)]
    Missing(#[from] MissingCounterpart),
    /// Its files cannot be written.
    #[error("cannot write the configuration of Puppet Server")]
    Write(#[from] io::Error),
    /// It did not start.
    #[error(transparent)]
    Server(#[from] ServerFault),
    /// It started, but did not say where.
    #[error("Puppet Server named no port; it had said: {said}")]
    NoPort {
        /// Its output until then.
        said: String,
    },
}

impl PuppetServerSettings {
    /// An authority in `folder`, without autosigning, else as it comes.
    #[must_use]
    pub fn below(folder: &Path) -> Self {
        Self {
            cadir: folder.join("ca"),
            certname: "localhost".to_owned(),
            autosign: "false".to_owned(),
            puppet_conf: String::new(),
            ca_conf: String::new(),
            java_args: JAVA_ARGS.to_owned(),
        }
    }
}

impl PuppetServer {
    /// Starts a server on a free port of loopback. `folder` must be below the folder for temporary files; a server that
    /// was stopped goes on in the same one.
    pub fn start(folder: &Path, settings: PuppetServerSettings) -> Result<Self, PuppetServerFault> {
        let program = Counterpart::Puppetserver.find()?;
        write_configuration(folder, &settings)?;
        let packaged = "/etc/puppet/puppetserver";
        let mut command = Command::new(program);
        command
            .env("JAVA_ARGS", &settings.java_args)
            .env("HOME", folder)
            .env("LC_ALL", "C.UTF-8")
            .arg("--config")
            .arg(format!(
                "{packaged}/conf.d/auth.conf,{packaged}/conf.d/web-routes.conf,{}",
                folder.join("conf.d").display()
            ))
            .args(["--bootstrap-config", &format!("{packaged}/services.d")]);
        let process = ServerProcess::start_wrapped(command, |line| line.contains(READY), PATIENCE)?;
        let Some(port) = port(&process.greeting) else {
            let said = process.greeting.clone();
            return Err(PuppetServerFault::NoPort { said });
        };
        let conf = client_configuration(folder, &settings, port);
        fs::write(folder.join("puppetserver-ca.conf"), conf)?;
        Ok(Self {
            folder: folder.to_owned(),
            settings,
            port,
            process,
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    /// The directory with its authority.
    #[must_use]
    pub fn cadir(&self) -> &Path {
        &self.settings.cadir
    }

    /// The authority's certificates.
    pub fn ca_bundle(&self) -> io::Result<Vec<u8>> {
        fs::read(self.cadir().join("ca_crt.pem"))
    }

    /// Certificate and key of its administrator, which is the server itself.
    pub fn admin_pair(&self) -> io::Result<(Vec<u8>, Vec<u8>)> {
        let ssl = self.folder.join("ssl");
        let file = format!("{}.pem", self.settings.certname);
        Ok((
            fs::read(ssl.join("certs").join(&file))?,
            fs::read(ssl.join("private_keys").join(&file))?,
        ))
    }

    /// A client without a certificate.
    pub fn anonymous(&self) -> io::Result<HttpsClient> {
        HttpsClient::new(self.address(), &self.ca_bundle()?, None)
    }

    /// Its administrator.
    pub fn admin(&self) -> io::Result<HttpsClient> {
        let (certificate, key) = self.admin_pair()?;
        HttpsClient::new(
            self.address(),
            &self.ca_bundle()?,
            Some((&certificate, &key)),
        )
    }

    /// `puppetserver ca` of its own release, as its administrator.
    pub fn command(&self) -> Result<PuppetserverCa, MissingCounterpart> {
        let config = self.folder.join("puppetserver-ca.conf");
        PuppetserverCa::of(Release::Debian13, &config, &self.folder)
    }

    /// Asks it to end and waits; `None` if it does not.
    pub fn stop(&mut self) -> Option<ExitStatus> {
        self.process.stop()
    }

    /// What it has logged so far.
    #[must_use]
    pub fn log(&self) -> String {
        self.process.log()
    }
}

/// For assertion messages: what it logged.
impl fmt::Display for PuppetServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.process.fmt(f)
    }
}

fn write_configuration(folder: &Path, settings: &PuppetServerSettings) -> io::Result<()> {
    for name in ["conf", "conf.d", "var", "code"] {
        fs::create_dir_all(folder.join(name))?;
    }
    let place = folder.display();
    fs::write(
        folder.join("conf/puppet.conf"),
        puppet_configuration(folder, settings),
    )?;
    fs::write(folder.join("logback.xml"), LOGBACK)?;
    let ca_conf = &settings.ca_conf;
    fs::write(
        folder.join("conf.d/server.conf"),
        format!(
            r#"global: {{ logging-config: "{place}/logback.xml" }}
metrics: {{ server-id: localhost }}
webserver: {{ client-auth: want, ssl-host: 127.0.0.1, ssl-port: 0 }}
certificate-authority: {{
{ca_conf}
}}
jruby-puppet: {{
    ruby-load-path: [/usr/lib/puppetserver/ruby/vendor_ruby]
    gem-home: "{place}/var/gems"
    gem-path: ["{place}/var/gems", /usr/lib/puppetserver/vendored-jruby-gems]
    server-conf-dir: "{place}/conf"
    server-code-dir: "{place}/code"
    server-var-dir: "{place}/var"
    server-run-dir: "{place}/run"
    server-log-dir: "{place}/log"
    max-active-instances: 1
}}
"#
        ),
    )
}

fn puppet_configuration(folder: &Path, settings: &PuppetServerSettings) -> String {
    let folder = folder.display();
    let PuppetServerSettings {
        cadir,
        certname,
        autosign,
        puppet_conf,
        ca_conf: _,
        java_args: _,
    } = settings;
    let cadir = cadir.display();
    format!(
        "[main]\ncertname = {certname}\ndns_alt_names = localhost\nssldir = {folder}/ssl\nvardir = {folder}/var\n\
         codedir = {folder}/code\nlogdir = {folder}/log\nrundir = {folder}/run\npublicdir = {folder}/public\n\
         keylength = 2048\n[server]\ncadir = {cadir}\nautosign = {autosign}\n{puppet_conf}\n"
    )
}

/// The same for `puppetserver ca`, which also wants to know where the server is.
fn client_configuration(folder: &Path, settings: &PuppetServerSettings, port: u16) -> String {
    let server = format!("[main]\nca_server = localhost\nca_port = {port}\n");
    puppet_configuration(folder, settings).replacen("[main]\n", &server, 1)
}

/// Jetty writes `Started ServerConnector@73be788f{SSL, (ssl, http/1.1)}{127.0.0.1:45109}`.
fn port(log: &str) -> Option<u16> {
    let (_, rest) = log.split_once("Started ServerConnector@")?;
    let (_, rest) = rest.split_once("{127.0.0.1:")?;
    rest.split('}').next()?.parse().ok()
}

const READY: &str = "Puppet Server has successfully started";

/// Starting is most of what it does here, so the machine code is made once and quickly.
const JAVA_ARGS: &str = "-Xms256m -Xmx768m -XX:+UseSerialGC -XX:TieredStopAtLevel=1";

/// Between two lines of its log; alone it needs 20 seconds for all of them.
const PATIENCE: Duration = Duration::from_secs(240);

/// To standard output, where the starter waits for a line, and to standard error, where the log is kept.
const LOGBACK: &str = r#"<configuration>
  <appender name="OUT" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%-5p [%c{2}] %m%n</pattern></encoder>
  </appender>
  <appender name="ERR" class="ch.qos.logback.core.ConsoleAppender">
    <target>System.err</target>
    <encoder><pattern>%d %-5p [%c{2}] %m%n</pattern></encoder>
  </appender>
  <root level="info"><appender-ref ref="OUT"/><appender-ref ref="ERR"/></root>
</configuration>
"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_port_from_the_log() {
        let log = "INFO Starting web server.\nINFO  [o.e.j.s.AbstractConnector] Started \
                   ServerConnector@73be788f{SSL, (ssl, http/1.1)}{127.0.0.1:45109}\nINFO Started @3ms\n";
        assert_eq!(port(log), Some(45109));
        assert_eq!(port("INFO Starting web server.\n"), None);
    }

    #[test]
    fn the_command_reads_what_the_server_reads() {
        let folder = Path::new("/f");
        let conf = client_configuration(folder, &PuppetServerSettings::below(folder), 45109);
        for line in [
            "ca_port = 45109",
            "ssldir = /f/ssl",
            "cadir = /f/ca",
            "autosign = false",
        ] {
            assert!(conf.lines().any(|found| found == line), "{line}\n{conf}");
        }
    }
}
