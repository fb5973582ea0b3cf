//! A Puppet Server's own files, `puppet.conf` and `ca.conf`, as a source of settings: what they say counts where the
//! configuration file itself says nothing.

use std::path::{Path, PathBuf};

use countersign_puppet_compat::{Autosign, CaConf, Ignored, KeyFault, PuppetConf};

use super::{Config, ConfigFault, PuppetSection, read};

/// What a person should know about the files that were read. The log does not exist yet when they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Remarks {
    /// What does not have the effect that it had.
    pub(crate) warnings: Vec<String>,
    /// What was passed over, for whoever wonders.
    pub(crate) details: Vec<String>,
}

impl Config {
    /// Reads the files that `puppet.puppet_conf` and `puppet.ca_conf` name and takes from them what the configuration
    /// file does not say itself.
    pub(crate) fn take_over_puppet_settings(&mut self) -> Result<Remarks, ConfigFault> {
        let mut remarks = Remarks::default();
        let section = &mut self.puppet;
        let mut puppet_conf = PuppetConf::default();
        if let Some(path) = &section.puppet_conf {
            let absolute = std::path::absolute(path).unwrap_or_else(|_| path.clone());
            let confdir = absolute.parent().unwrap_or(Path::new("/"));
            puppet_conf = PuppetConf::parse(&read(path)?, confdir).map_err(in_file(path))?;
            // Also a file that says nothing says this.
            let default = || Autosign::File(confdir.join("autosign.conf"));
            puppet_conf.autosign.get_or_insert_with(default);
            remarks.passed_over(path, &puppet_conf.ignored);
        }
        let mut ca_conf = CaConf::default();
        if let Some(path) = &section.ca_conf {
            ca_conf = CaConf::parse(&read(path)?).map_err(in_file(path))?;
            remarks.passed_over(path, &ca_conf.ignored);
            remarks.warn_of(&ca_conf, &puppet_conf, path);
        }
        section.take_over(puppet_conf, ca_conf);
        Ok(remarks)
    }
}

impl PuppetSection {
    fn take_over(&mut self, puppet: PuppetConf, ca: CaConf) {
        let said = std::mem::take(&mut self.said);
        let is_open = |key: &str| !said.contains(key);
        let autosign = puppet.autosign.map(Into::into);
        adopt(is_open("autosign"), autosign, &mut self.autosign);
        let ca_ttl = ca.ca_ttl.or(puppet.ca_ttl);
        adopt(is_open("ca_ttl"), ca_ttl, &mut self.ca_ttl);
        adopt(
            is_open("allow_duplicate_certs"),
            puppet.allow_duplicate_certs,
            &mut self.allow_duplicate_certs,
        );
        adopt(
            is_open("allow_subject_alt_names"),
            ca.allow_subject_alt_names,
            &mut self.allow_subject_alt_names,
        );
        adopt(
            is_open("allow_authorization_extensions"),
            ca.allow_authorization_extensions,
            &mut self.allow_authorization_extensions,
        );
        adopt(
            is_open("auto_renewal"),
            ca.allow_auto_renewal,
            &mut self.auto_renewal,
        );
        adopt(
            is_open("auto_renewal_cert_ttl"),
            ca.auto_renewal_cert_ttl,
            &mut self.auto_renewal_cert_ttl,
        );
        adopt(
            is_open("infra_crl"),
            ca.enable_infra_crl,
            &mut self.infra_crl,
        );
        adopt(
            is_open("infra_inventory"),
            ca.infra_nodes_path.map(Some),
            &mut self.infra_inventory,
        );
        self.said = said;
    }
}

fn adopt<T>(is_open: bool, found: Option<T>, setting: &mut T) {
    if let (true, Some(value)) = (is_open, found) {
        *setting = value;
    }
}

impl Remarks {
    fn passed_over(&mut self, path: &Path, ignored: &[Ignored]) {
        let path = path.display();
        let sentences = ignored
            .iter()
            .map(|Ignored { line, key }| format!("{path}, line {line}: {key} is not for us"));
        self.details.extend(sentences);
    }

    /// What of a `ca.conf` does not have the effect that its readers may expect.
    fn warn_of(&mut self, ca: &CaConf, puppet: &PuppetConf, path: &Path) {
        let shown = path.display();
        if let (Some(span), Some(_)) = (ca.ca_ttl, puppet.ca_ttl) {
            self.warnings.push(format!(
                "ca-ttl in {shown} wins over ca_ttl in puppet.conf: {span}"
            ));
        }
        if let Some((line, who)) = &ca.legacy_access {
            self.warnings.push(format!(
                "{shown}, line {line}: certificate-status admits {who} without an administrator's certificate; here it \
                 admits nobody: give who needs it a role in access or a certificate with pp_cli_auth, and remove the section"
            ));
        }
    }
}

fn in_file(path: &Path) -> impl FnOnce(KeyFault) -> ConfigFault {
    let path: PathBuf = path.to_owned();
    |KeyFault { line, key, what }| ConfigFault::PuppetServer {
        path,
        line,
        key,
        what,
    }
}
