#!/bin/sh
# A policy executable that asks another server whether a certificate request may be signed.
#
# Countersign (rule `executable`, or `puppet.autosign`) and Puppet Server (`autosign` in puppet.conf) run it with the
# certname as its argument and the request in PEM on standard input. It sends the request on, as it is, and exits with 0
# if the answer is 200, and with 1 whatever else happens: nothing is signed then.
#
# Where to, whom to trust and who we are stands in policy.curlrc beside this file; see policy.curlrc.example.
# The request may hold a one-time password. It goes from standard input to the connection and nowhere else: not into an
# argument, a variable, a file or a log.
set -eu
umask 077

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
settings=$here/policy.curlrc

if [ ! -r "$settings" ]; then
    echo "$0: cannot read $settings" >&2
    exit 1
fi

# --disable keeps a .curlrc of the user's out; --proto refuses plain HTTP, whatever the settings say.
status=$(curl --disable --config "$settings" \
    --proto '=https' --noproxy '*' --max-redirs 0 \
    --connect-timeout 2 --max-time 8 \
    --silent --show-error --output /dev/null --write-out '%{http_code}' \
    --header 'Accept: application/json,version=2' \
    --header 'Content-Type: text/plain' \
    --header 'Expect:' \
    --data-binary @-) || exit 1

if [ "$status" != 200 ]; then
    echo "$0: not to be signed: the server answered $status" >&2
    exit 1
fi
