package contestant_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/penstock/penstock/bench/contestant"
)

func TestVersion(t *testing.T) {
	for name, test := range map[string]struct{ binary, says, want string }{
		"haproxy-2": {"haproxy", "HAProxy version 2.6.12-1+deb12u1 2023/12/16 - https://haproxy.org/", "2.6.12-1+deb12u1"},
		"nginx":     {"nginx", "nginx version: nginx/1.22.1 >&2", "1.22.1"},
		"envoy":     {"envoy", "envoy  version: 0123abcd/1.30.1/Clean/RELEASE/BoringSSL", "1.30.1"},
		"haproxy-1": {"haproxy", "something else", ""},
	} {
		path := filepath.Join(t.TempDir(), test.binary)
		if err := os.WriteFile(path, []byte("#!/bin/sh\necho "+test.says+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		k, err := contestant.Named(name)
		if err != nil {
			t.Fatal(err)
		}
		if got := k.Version(&contestant.Setting{Binaries: map[string]string{test.binary: path}}); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
		if got := k.Version(&contestant.Setting{Binaries: map[string]string{test.binary: "/not/here"}}); got != "" {
			t.Errorf("%s that is not there: %q", name, got)
		}
	}
	if k, _ := contestant.Named("direct"); k.Version(new(contestant.Setting)) != "" {
		t.Error("direct has a version")
	}
}
