package source_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/penstock/penstock/proxy/internal/source"
)

// TestParseRule: a rule is read as it is written.
func TestParseRule(t *testing.T) {
	for text, want := range map[string]source.Rule{
		"10.0.0.7": network("10.0.0.7/32"), "10.0.0.0/8": network("10.0.0.0/8"), "2001:db8::1": network("2001:db8::1/128"),
		"unix": source.UnixClients(), "all": source.All(), "unix:uid=7": source.UnixUser(7), "unix:gid=0": source.UnixGroup(0),
	} {
		got, err := source.ParseRule(text)
		if err != nil || got != want || got.Text() != text {
			t.Errorf("%s: %v (%s), %v", text, got, got.Text(), err)
		}
	}
	for _, text := range []string{"", "10.0.0", "any", "unix:", "unix:uid=", "unix:uid=-1", "unix:gid=4294967295", "fe80::1%eth0", "10.0.0.0/33", "host"} {
		if got, err := source.ParseRule(text); !errors.Is(err, source.ErrRule) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}

// TestParsePrefix: a network is read as it is written. One that may have been meant otherwise is refused, with the
// texts for either meaning.
func TestParsePrefix(t *testing.T) {
	for text, want := range map[string]string{
		"10.0.0.7": "10.0.0.7/32", "10.0.0.0/8": "10.0.0.0/8", "2001:db8::/32": "2001:db8::/32", "0.0.0.0/0": "0.0.0.0/0",
	} {
		if got, err := source.ParsePrefix(text, "fix"); err != nil || got.String() != want {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for text, want := range map[string]string{
		"127.0.0.78/24": "bits beyond its length: write 127.0.0.0/24, or 127.0.0.78/32", "10.0.0.7/0": "write 0.0.0.0/0, or 10.0.0.7/32",
		"2001:db8::1/32": "write 2001:db8::/32, or 2001:db8::1/128", "::ffff:10.0.0.0/104": "write it as IPv4", "::ffff:10.0.0.7": "write it as IPv4",
		"fe80::1%eth0": "a CIDR: fix", "10.0.0.7:80": "a CIDR: fix", "all": "a CIDR: fix", "": "a CIDR: fix",
	} {
		_, err := source.ParsePrefix(text, "fix")
		if _, ruleErr := source.ParseRule(text); text != "all" && ruleErr == nil {
			t.Errorf("%q is a rule", text)
		}
		if !errors.Is(err, source.ErrRule) || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
