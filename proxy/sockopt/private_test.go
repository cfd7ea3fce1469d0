package sockopt_test

import (
	"testing"

	"github.com/penstock/penstock/proxy/sockopt"
)

func TestLoopback(t *testing.T) {
	for host, want := range map[string]bool{
		"127.0.0.1": true, "127.0.0.1:80": true, "127.255.0.9:80": true,
		"::1": true, "[::1]": true, "[::1]:80": true, "[::ffff:127.0.0.1]:80": true,
		"localhost": true, "localhost:80": true, "LOCALHOST": true, "LocalHost:80": true, "localhost.": true, "localhost.:80": true,
		"": false, ":80": false, ".": false, "[]": false, "[": false, "]": false, "localhost..": false, ".localhost": false,
		"[localhost]": false, "[localhost]:80": false, "a.localhost": false, "localhost.evil.example": false, "localhost@evil.example": false,
		"0.0.0.0": false, "[::]": false, "10.0.0.1": false, "[::2]": false, "::2": false, "[::1": false, "::1]": false, "[[::1]]": false,
		"localhost:evil": false, "127.0.0.1:evil": false, "[::1]:http": false, "localhost:-1": false, "localhost:": false, "localhost:65536": false, "[::1%evil]": false, "[::1%evil]:80": false,
		"127.1": false, "2130706433": false, "0x7f.0.0.1": false, "127.0.0.1.evil.example": false,
	} {
		if got := sockopt.Loopback(host); got != want {
			t.Errorf("%q is of the loopback: %v", host, got)
		}
	}
}
