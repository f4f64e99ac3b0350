#!/bin/sh
# The browser that tests of the judge page look through, if this machine lets us have it: as root, by apt.
# Without one these tests are left out, and the tests' last lines say so.
for name in chromium chromium-browser google-chrome google-chrome-stable; do
    command -v "$name" > /dev/null && exit 0
done
if [ "$(id -u)" -eq 0 ] && command -v apt-get > /dev/null; then
    echo "installing chromium, which tests of the judge page look through"
    { apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends chromium; } > /dev/null 2>&1
fi
exit 0
