//! What keeps rules from deciding, whatever they say: rules that are not known yet, and rules that nobody can read.
//!
//! A policy that cannot be read might deny. So nothing is decided for its signers until it can, and nothing at all before
//! it is known which policies there are.

use std::collections::BTreeMap;

use countersign_policy::SignerName;

use crate::controllers::Rules;
use crate::plan::{Reason, shortened};

/// For which signers no rule decides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Withheld {
    /// For none. Why, in words; empty where that is a matter of moments and not worth telling.
    pub all: Option<String>,
    /// For these, each with the policy that is to blame and what is wrong with it.
    pub signers: BTreeMap<SignerName, (String, String)>,
}

/// What that means for one request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    /// The rules decide.
    No,
    /// There are no rules for its signer: it is somebody else's.
    NoRules,
    /// It waits for a moment.
    Quietly,
    /// It waits, and says so.
    Because(Reason),
}

impl Rules {
    /// Whether a request for this signer is decided.
    pub(crate) fn hold(&self, signer: &SignerName) -> Hold {
        if let Some((policy, why)) = self.withheld.signers.get(signer) {
            return Hold::Because(reason(policy, "PolicyNotInUse", why));
        }
        if self.policy.rules_for(signer).next().is_none() {
            // Whatever they say, they will be put in force with a look at every request.
            return Hold::NoRules;
        }
        match self.withheld.all.as_deref() {
            None => Hold::No,
            Some("") => Hold::Quietly,
            Some(why) => Hold::Because(reason("", "PoliciesUnreadable", why)),
        }
    }
}

fn reason(policy: &str, code: &str, why: &str) -> Reason {
    let of = match policy {
        "" => String::new(),
        name => format!("ApprovalPolicy {name} is not in use, and might deny it: "),
    };
    Reason {
        rule: policy.to_owned(),
        code: code.to_owned(),
        words: shortened(&format!("waiting for a person or a repair ({of}{why})")),
    }
}
