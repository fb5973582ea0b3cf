#!/bin/sh
# Enrols this machine's Puppet agent with a one-time token. Put the three values in, and run it as root where the
# machine is made. The part between the lines "begin" and "end" is the same in every example of this folder.
token='@TOKEN@'
server='@SERVER@'
certname='@CERTNAME@'

# begin: enrol with a token
(
    set -eu
    puppet=$(command -v puppet || echo /opt/puppetlabs/bin/puppet)
    confdir=$("$puppet" config print confdir </dev/null)
    attributes=$confdir/csr_attributes.yaml
    request=$("$puppet" config print requestdir </dev/null)/$certname.pem

    # Whatever happens below, the token does not stay behind, nor the copy of the request that an agent keeps while it waits.
    trap 'rm -f -- "$attributes" "$request"' EXIT
    trap 'exit 1' HUP INT TERM

    # The file is private before there is anything in it, and new: what somebody else has put there is not written to.
    mkdir -p -- "$confdir"
    rm -f -- "$attributes"
    (
        umask 077
        set -C
        cat > "$attributes" <<ATTRIBUTES
custom_attributes:
  1.2.840.113549.1.9.7: "$token"
ATTRIBUTES
    )

    "$puppet" config set --section main server "$server" </dev/null
    "$puppet" config set --section main certname "$certname" </dev/null
    # The same key may show the token again, so another try costs nothing. More than four wrong ones lock a token.
    tries=3
    until "$puppet" ssl bootstrap --server "$server" --certname "$certname" --waitforcert 0 </dev/null; do
        tries=$((tries - 1))
        if [ "$tries" -eq 0 ]; then
            echo "not enrolled: ask the authority with 'countersign csr explain $certname'" >&2
            exit 1
        fi
        sleep "${PAUSE:-20}"
    done
)
# end: enrol with a token
