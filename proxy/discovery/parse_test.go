package discovery_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/penstock/penstock/proxy/discovery"
)

func TestParse(t *testing.T) {
	full := []discovery.Endpoint{
		{Address: "10.0.0.11:5432", Weight: 1},
		{Address: "[fd00::1]:5432", Name: "b", Weight: 0, Backup: true, Zone: "eu-1a", Connections: 100},
		{Address: "unix:/run/x.sock", Weight: 256},
		{Address: "db-3.example:5432", Weight: 1},
	}
	for name, text := range map[string]string{
		"YAML": `
# the fleet
- 10.0.0.11:5432
- {address: "[fd00::1]:5432", name: b, weight: 0, backup: true, zone: eu-1a, connections: 100}
- address: unix:/run/x.sock
  weight: 256
- "db-3.example:5432"
`,
		"JSON": `["10.0.0.11:5432", {"address": "[fd00::1]:5432", "name": "b", "weight": 0, "backup": true, "zone": "eu-1a",
			"connections": 100}, {"address": "unix:/run/x.sock", "weight": 256}, "db-3.example:5432"]`,
	} {
		got, err := discovery.Parse("eps", []byte(text))
		if diff := cmp.Diff(full, got); diff != "" || err != nil {
			t.Errorf("%s: %v %s", name, err, diff)
		}
	}
	if got, err := discovery.Parse("eps", []byte("[]")); len(got) != 0 || err != nil {
		t.Errorf("no endpoints: %v, %v", got, err)
	}
}

func TestParseProblems(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", "eps:1:1: the file is empty: write [] for no endpoints"},
		{"# nothing\n", "eps:1:1: the file says nothing"},
		{"endpoints: []", "eps:1:1: write a list"},
		{"- 10.0.0.1:1\n- [x]\n", "eps:2:3: write an endpoint as"},
		{"- {adress: 10.0.0.1:1}", `eps:1:4: unknown key "adress": write address`},
		{"- {weight: 2}", "eps:1:3: write the endpoint's address"},
		{"- 10.0.0.1\n", `eps:1:3: invalid address "10.0.0.1": write 10.0.0.1:8080`},
		{"- ':80'\n", `eps:1:3: address ":80": write a host and a port`},
		{"- 0.0.0.0:80\n", `eps:1:3: address "0.0.0.0:80": 0.0.0.0 is the address of no host: write that of one server`},
		{"- '[fe80::1]:80'\n", `eps:1:3: address "[fe80::1]:80": fe80::1 is link-local, and has no zone`},
		{"- a:0\n", `eps:1:3: address "a:0": write a host and a port`},
		{"- '[::1]:0'\n", "write a host and a port"},
		{"- unix:/x?mode=0600\n", "write unix:/x"},
		{"- 10.0.0.1:1\n- 10.0.0.1:1\n", `eps:2:3: endpoint "10.0.0.1:1" is in line 1 already`},
		{"- {address: a:1, weight: 257}", "eps:1:26: write a whole number from 0 to 256"},
		{"- {address: a:1, weight: '1'}", "eps:1:26: write a whole number"},
		{"- {address: a:1, weight: -1}", "eps:1:26: write a whole number"},
		{"- {address: a:1, backup: maybe}", "eps:1:26: write true or false"},
		{"- {address: a:1, zone: 5}", "eps:1:24: write text in quotes"},
		{"- 5432\n", "eps:1:3: write text in quotes"},
		{"- a:1\n- {address: b:1\n", "eps:3:1:"},
		{"- a:1\n---\n- b:1\n", "eps:2:1: write one document"},
		{"- {address: a:1, address: b:1}", "eps:1:"},
		{"\x00\xff", "eps:"},
		{"- a:1 # \x1b[2J\n", "eps:1:9: the character U+001B is no text"},
		{"- {address: a:1, name: \"\\e[2J\"}", `eps:1:24: "\x1b[2J" has characters that cannot be seen`},
		{"- {address: a:1, name: \"a\\nb\"}", `"a\nb" has characters that cannot be seen`},
		{"- {address: a:1, zone: \"\\u009b\"}", `"\u009b" has characters that cannot be seen`},
		{"- {address: a:1, zone: \"\\u202e\"}", `"\u202e" has characters that cannot be seen`},
		{"- {address: a:1, name: " + strings.Repeat("x", 256) + "}", "… is 256 bytes long: write at most 255"},
		{"- \"unix:/run/a\\nb\"", `invalid address "unix:/run/a\nb": write printable characters`},
		{"- a:1\n- \"a b:80\"", `eps:2:3: invalid address "a b:80": "a b" is neither an IP address nor a name: write 10.0.0.12:80`},
		{"- {weight: 2, address: \"db/x:80\"}", `eps:1:24: invalid address "db/x:80"`},
		{"- 10.0.0.256:80", `eps:1:3: invalid address "10.0.0.256:80": "10.0.0.256" is not an IP address: write the four numbers`},
		{"- \"a\\eb:80\"", `invalid address "a\x1bb:80": write printable characters`},
		{"- " + strings.Repeat("x", 300) + ":80", "a name has at most 255 bytes"},
	} {
		got, err := discovery.Parse("eps", []byte(c.text))
		if err == nil || !strings.Contains(err.Error(), c.want) || got != nil {
			t.Errorf("%q:\ngot  %v, %v\nwant %s", c.text, got, err, c.want)
		}
	}
}

func TestParseTellsAllAtOnce(t *testing.T) {
	_, err := discovery.Parse("eps", []byte("- a\n- {address: b:1, weight: x}\n- c:1\n"))
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != 2 || !strings.HasPrefix(lines[0], "eps:1:3: ") || !strings.HasPrefix(lines[1], "eps:2:26: ") {
		t.Errorf("got %q", lines)
	}
	var p *discovery.Problem
	if !errors.As(err, &p) || p.Line != 1 || p.Column != 3 || p.File != "eps" {
		t.Errorf("problem %+v", p)
	}
	_, err = discovery.Parse("eps", []byte(strings.Repeat("- x\n", 1000)))
	if n := strings.Count(err.Error(), "\n"); n != 20 {
		t.Errorf("%d lines of problems, want 21", n+1)
	}
}

// FuzzParse: no input panics, and accepted endpoints are valid.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"[]", "- a:1\n", `["a:1", {"address": "b:1", "weight": 3}]`, "- &a {address: x:1}\n- *a\n", "- <<: {address: x:1}\n",
		"a: &a [*a]\n", "- !!binary aGk=\n", "%YAML 1.2\n---\n- a:1\n", "- unix:@x\n", "- {address: [::1]:1}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		endpoints, err := discovery.Parse("f", data)
		if err != nil {
			if endpoints != nil {
				t.Fatal("endpoints beside an error")
			}
			for _, line := range strings.Split(err.Error(), "\n") {
				if !strings.HasPrefix(line, "f:") {
					t.Fatalf("a line without a place: %q", err)
				}
			}
			return
		}
		var names []string
		for _, e := range endpoints {
			if e.Address == "" || e.Weight < 0 || e.Weight > discovery.MaxWeight || e.Connections < 0 {
				t.Fatalf("endpoint %+v", e)
			}
			names = append(names, e.Identity())
		}
		slices.Sort(names)
		if len(slices.Compact(names)) != len(endpoints) {
			t.Fatal("two of the same name")
		}
	})
}
