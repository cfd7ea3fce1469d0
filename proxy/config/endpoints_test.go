package config_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/testutil/heap"
	"github.com/penstock/penstock/proxy/config"
)

// TestParseEndpoints: YAML and JSON say the same, and $ is a character as others.
func TestParseEndpoints(t *testing.T) {
	const want = `[{10.0.0.11:5432  1 false  0} {[fd00::1]:5432 b 0 true eu-$1a 100} {unix:/run/x.sock  256 false  0} {db-3.example:5432 😀 1 false  0}]`
	for _, text := range []string{
		`
# the fleet
- 10.0.0.11:5432
- {address: "[fd00::1]:5432", name: b, weight: 0, backup: true, zone: eu-$1a, connections: 100}
- address: unix:/run/x.sock
  weight: 256
- {address: db-3.example:5432, name: "😀"}
`,
		`["10.0.0.11:5432", {"address": "[fd00::1]:5432", "name": "b", "weight": 0, "backup": true, "zone": "eu-$1a",
			"connections": 100}, {"address": "unix:/run/x.sock", "weight": 256}, {"address": "db-3.example:5432", "name": "\ud83d\ude00"}]`,
	} {
		list, err := config.ParseEndpoints("eps", []byte(text), 4)
		var got []string
		for _, e := range list {
			got = append(got, fmt.Sprint([]any{e.Address, e.Name, e.Weight, e.Backup, e.Zone, e.Connections}))
		}
		if s := strings.NewReplacer("[[", "[{", "] [", "} {", "]]", "}]").Replace(fmt.Sprint(got)); err != nil || s != want {
			t.Errorf("%s, %v\nwant %s", s, err, want)
		}
	}
	if list, err := config.ParseEndpoints("eps", []byte("[]"), 4); len(list) != 0 || err != nil {
		t.Errorf("no endpoints: %v, %v", list, err)
	}
}

func TestParseEndpointsProblems(t *testing.T) {
	for text, want := range map[string]string{
		"":                             "eps:1:1: the file is empty: write [] for no endpoints",
		"# nothing\n":                  "eps:1:1: the file is empty",
		"endpoints: []":                "eps:1:1: a file of endpoints must be a list, not a group of keys: write a list",
		"- 10.0.0.1:1\n- [x]\n":        "eps:2:3: each of endpoints must be a group of keys, not a list",
		"- {adress: 10.0.0.1:1}":       `eps:1:4: unknown key "adress": did you mean "address"?`,
		"- {weight: 2}":                "eps:1:3: address is missing",
		"- 10.0.0.1\n":                 `eps:1:3: "10.0.0.1" is not an address: write the port too, such as 10.0.0.1:8080`,
		"- 0.0.0.0:80\n":               "eps:1:3: 0.0.0.0 is not the address of a host: write the address of one server",
		"- unix:/x?mode=0600\n":        `eps:1:3: "unix:/x?mode=0600" is an address to connect to, which has no mode`,
		"- 10.0.0.1:1\n- 10.0.0.1:1\n": `eps:2:3: the endpoint 10.0.0.1:1 is already defined in eps:1:3`,
		"- {address: a:1, name: 'b:1'}\n- {address: b:1, name: b}": "eps:1:24: the endpoint at a:1 has the address of another endpoint as its name: b:1: write another name",
		"- {address: a:1, weight: 257}":                            "eps:1:26: weight is 257, more than 256: write 256 or less",
		"- {address: a:1, state: maint}":                           "eps:1:25: a file of endpoints has no state: leave it out",
		"- {address: a:1, zone: 5}":                                "eps:1:24: zone must be text, not a number: write it in quotes",
		"- a:1\n- {address: b:1\n":                                 "eps:",
		"- a:1\n---\n- b:1\n":                                      "eps:2:1: a file is one document",
		"- a:1 # \x1b[2J\n":                                        "eps:1:9: the character U+001B is not allowed in text",
		"- {address: a:1, name: \"\\u202e\"}":                      "has characters that are not printable",
		"- a:1\n- b:1\n- c:1":                                      "eps:3:3: there are more than 2 endpoints: write fewer endpoints",
	} {
		list, err := config.ParseEndpoints("eps", []byte(text), 2)
		if err == nil || list != nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v, %v\nwant %s", text, list, err, want)
		}
	}
	_, err := config.ParseEndpoints("eps", []byte(strings.Repeat("- x\n", 1000)), 1000)
	if n := strings.Count(err.Error(), "\n"); n != 20 {
		t.Errorf("%d lines of problems, want 21", n+1)
	}
}

// TestHosts: the host of an endpoint is an address or a name of DNS, which is found out without a lookup.
func TestHosts(t *testing.T) {
	long := strings.Repeat("x", 63)
	for text, want := range map[string]string{
		"10.0.0.1:80": "", "[2001:db8::1]:80": "", "[fe80::1%eth0]:80": "", "db:80": "", "db.example:80": "", "db.example.:80": "",
		"a_b.example:80": "", "_pg._tcp.example:80": "", "xn--bcher-kva.example:80": "", "1a.2b:80": "", "4711.example:80": "", "DB-1:80": "",
		long + "." + long + ":80": "", "unix:/run/x": "", "unix:@x y": "",
		":80": "write 127.0.0.1:80 for this machine", "db:0": "1 to 65535",
		"a b:80": `"a b" is neither an IP address nor a name: write 10.0.0.12:80, [2001:db8::12]:80 or db.example:80`,
		" db:80": "neither", "db/x:80": "neither", "user@db:80": "neither", "a..b:80": "neither", ".db:80": "neither",
		"-db:80": "neither", "db-.example:80": "neither", "*.example:80": "neither", "a%b:80": "neither", "'db':80": "neither",
		"[db]x:80": "write", "${DB}:80": "neither", long + "x:80": "neither", ".:80": "neither",
		"bücher.example:80": "Punycode", "10.0.0.256:80": "write the four numbers", "4711:80": "write the four numbers",
		"010.0.0.1:80": "write the four numbers", "[::g]:80": "neither",
	} {
		_, err := config.ParseEndpoints("eps", []byte(`["`+text+`"]`), 1)
		if (err != nil) != (want != "") || want != "" && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// TestTenThousandListed: as many endpoints as a source may have take little memory in every style, and a file of more values is refused.
func TestTenThousandListed(t *testing.T) {
	const n, most = 10_000, 96 << 20
	const all = `address: "[2001:db8:1:2:3:4:5:%x]:5432", name: endpoint-%[1]d, weight: 200, backup: true, zone: eu-west-1a, connections: 1000`
	const json = `{"address": "[2001:db8:1:2:3:4:5:%x]:5432", "name": "endpoint-%[1]d", "weight": 200, "backup": true, "zone": "eu-west-1a", "connections": 1000}`
	each := func(text, between string) string {
		list := make([]string, n)
		for i := range list {
			list[i] = fmt.Sprintf(text, i)
		}
		return strings.Join(list, between)
	}
	for name, text := range map[string]string{
		"JSON":           "[" + each(json, ",") + "]",
		"groups of keys": each("- {"+all+"}\n", ""),
		"keys in lines":  each("- "+strings.ReplaceAll(all, ", ", "\n  # a comment\n  ")+"\n", "# the next one\n"),
	} {
		taken, _ := heap.Taken(func() {
			if list, err := config.ParseEndpoints("eps", []byte(text), n); err != nil || len(list) != n {
				t.Errorf("%s: %d endpoints, %.300v", name, len(list), err)
			}
		})
		if taken > most {
			t.Errorf("%s: %d MiB", name, taken>>20)
		}
	}
	if _, err := config.ParseEndpoints("eps", []byte("["+strings.Repeat("[],", 200_000)+"[]]"), n); err == nil || !strings.Contains(err.Error(), "too many values") || !strings.Contains(err.Error(), "write fewer endpoints") {
		t.Errorf("lists without end: %v", err)
	}
}
