"""Addresses that no request may go to, and ways to write them that some program somewhere takes."""

# A corpus of words is easier to read and to add to than a list of quotations.
# ruff: noqa: SIM905

PRIVATE = """
    0.0.0.0 0.1.2.3 10.0.0.1 10.255.255.255 100.64.0.1 100.100.100.200 127.0.0.1 127.255.255.254
    169.254.169.254 169.254.0.1 172.16.0.1 172.31.255.255 192.0.0.1 192.0.0.192 192.0.2.1
    192.88.99.1 192.168.0.1 198.18.0.1 198.19.255.255 198.51.100.1 203.0.113.1 224.0.0.1
    239.255.255.255 240.0.0.1 255.255.255.255
    :: ::1 ::127.0.0.1 ::ffff:127.0.0.1 ::ffff:10.0.0.1 ::ffff:93.184.215.14 ::ffff:0:127.0.0.1
    64:ff9b::127.0.0.1 64:ff9b::169.254.169.254 64:ff9b:1::1 100::1 2001::1 2001:0:7f00:1::
    2001:10::1 2001:20::1 2001:db8::1 2002:7f00:1:: 2002:a9fe:a9fe:: 3fff::1 5f00::1 fc00::1
    fd00:ec2::254 fd12:3456::1 fe80::1 fe80::1%eth0 fec0::1 ff02::1 ff0e::1 4000::1 e000::1
""".split()

SPELLINGS = [
    *"""
    http://127.0.0.1/ http://127.0.0.1:80/ http://127.1/ http://127.0.1/ http://2130706433/
    http://017700000001/ http://0177.0.0.1/ http://0177.0.0.01/ http://0x7f000001/ http://0x7f.1/
    http://0x7f.0x0.0x0.0x1/ http://0X7F.0.0.1/ http://127.0.0.1./ http://127.0.0.0x1/ http://0/
    http://00000177.0.0.1/ http://127.000.000.001/ http://4294967297/ http://0x100000001/
    http://3232235777/ http://2852039166/ http://0xa9fea9fe/ http://169.254.169.254/latest/meta-data/
    http://0251.0376.0251.0376/ http://[::1]/ http://[::]/ http://[0:0:0:0:0:0:0:1]/
    http://[::ffff:127.0.0.1]/ http://[::ffff:7f00:1]/ http://[0:0:0:0:0:ffff:127.0.0.1]/
    http://[::127.0.0.1]/ http://[64:ff9b::7f00:1]/ http://[2002:7f00:1::]/ http://[fe80::1%25eth0]/
    http://[fe80::1%eth0]/ http://[fd00:ec2::254]/ http://127%2e0%2e0%2e1/ http://%31%32%37.0.0.1/
    http://①②⑦.⓪.⓪.①/ http://１２７.0.0.1/ http://127。0。0。1/ http://127．0．0．1/ http://⑯⑨。254。169。254/
    http://localhost/ http://LOCALHOST/ http://localhost./ http://localhost.localdomain/
    http://ip6-localhost/ http://[::1/ http://::1/ http://127.0.0.1.site.example:80@127.0.0.1/
    http://site.example@127.0.0.1/ http://site.example:pw@127.0.0.1/ http://site.example%40127.0.0.1/
    http://127.0.0.1\\@site.example/ http://site.example\\@127.0.0.1/ http:\\\\127.0.0.1\\
    http://@127.0.0.1/ http://:@127.0.0.1/ http://127.0.0.1#@site.example/
    http://127.0.0.1?@site.example/ //127.0.0.1/ http:127.0.0.1 http:/127.0.0.1/ http:///127.0.0.1/
    127.0.0.1 file:///etc/passwd file://127.0.0.1/etc/passwd ftp://127.0.0.1/ gopher://127.0.0.1/_x
    dict://127.0.0.1/ data:text/html,x javascript:alert(1) ws://127.0.0.1/ HTTP://127.0.0.1/
    hTTp://0x7f.1/ unix:///run/x.sock http+unix://%2frun%2fx/ jar:http://127.0.0.1!/ blob:http://x/
    http://1.1.1.1.1/ http://1.2.3/ http://256.256.256.256/ http://-1/ http://1e3/ http://0b1/
    http://site.example:22/ http://site.example:6379/ http://site.example:99999/ http://site.example:0/
    http://site.example:-80/ http://site.example:8o/ http://./ http://../ http:// https:// http://#
    http://a..b/ http://-a.example/ http://a_b-.example/
""".split(),
    *[
        "http://127.0.0.1\t/",
        "http://127.0.0.1\n.site.example/",
        "http://site.example\r\nHost: 127.0.0.1/",
        "http://site.example/ HTTP/1.1\r\nX: y",
        "http://127.0.0.1\x00.site.example/",
        " \thttp://127.0.0.1/",
        "http://site.example:80 80/",
        "http://" + "a." * 200 + "example/",
        "http://" + "a" * 64 + ".example/",
        "http://site.example/" + "x" * 5_000,
        "",
    ],
]
