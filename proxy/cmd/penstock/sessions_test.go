package main

import (
	"strings"
	"testing"

	"github.com/penstock/penstock/proxy/admin"
)

// TestUnknownNames: an adopted session whose listener is not known is not listed as one that has none.
func TestUnknownNames(t *testing.T) {
	t.Parallel()

	var out strings.Builder
	list := admin.Sessions{Sessions: []admin.Session{
		{Client: "adopted", Upstream: "shop", Engine: admin.EngineLane, Adopted: true},
		{Client: "dialing", Listener: "web"},
	}}
	if err := writeSessions(&out, &list); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(out.String(), "\n")
	if f := strings.Fields(lines[1]); f[1] != "@unknown" || f[2] != "shop" {
		t.Errorf("%q", lines[1])
	}
	if f := strings.Fields(lines[2]); f[1] != "web" || f[2] != "-" {
		t.Errorf("%q", lines[2])
	}
}
