package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock/penstock/proxy/config"
)

func weight(n int) *int { return &n }

func newEndpoint(t *testing.T, address, name, zone string, weight int) *config.Endpoint {
	t.Helper()
	e, err := config.NewEndpoint(&config.EndpointKeys{Address: address, Name: name, Zone: zone, Weight: weight})
	must(t, err)
	return &e
}

// TestEditEndpoint: an edit changes the endpoint's line alone, in whichever form it is written.
func TestEditEndpoint(t *testing.T) {
	const head = "# a file\nlisteners: [{name: l, bind: \":80\", upstream: u}]\nupstreams:\n  - name: u # the only one\n    endpoints:"
	const tail = "\n    queue: {size: 5} # and this\n"
	added := newEndpoint(t, "127.0.0.1:9", "", "", 1)
	named := newEndpoint(t, "127.0.0.1:9", "n", "z", 3)
	a := config.EndpointEdit{Upstream: "u", Endpoint: "127.0.0.1:1"}
	by := func(change func(e *config.EndpointEdit)) config.EndpointEdit {
		e := a
		change(&e)
		return e
	}
	heavier := by(func(e *config.EndpointEdit) { e.Weight = weight(7) })
	drain := by(func(e *config.EndpointEdit) { e.State = config.Drain })
	ready := by(func(e *config.EndpointEdit) { e.State = config.Ready })
	gone := by(func(e *config.EndpointEdit) { e.Remove = true })
	drained := newEndpoint(t, "127.0.0.1:9", "", "", 0)
	drained.State = config.Drain
	addDrained := config.EndpointEdit{Upstream: "u", Add: drained}
	add, addNamed := config.EndpointEdit{Upstream: "u", Add: added}, config.EndpointEdit{Upstream: "u", Add: named}
	for name, tc := range map[string]struct {
		edit          config.EndpointEdit
		before, after string
	}{
		"weight of an address":           {heavier, ` ["127.0.0.1:1", "127.0.0.1:2"] # c`, ` [{address: "127.0.0.1:1", weight: 7}, "127.0.0.1:2"] # c`},
		"weight of a plain address":      {heavier, " [127.0.0.1:1]", " [{address: 127.0.0.1:1, weight: 7}]"},
		"weight of an address in a line": {heavier, "\n      # first\n      - 127.0.0.1:1 # c\n      - 127.0.0.1:2", "\n      # first\n      - {address: 127.0.0.1:1, weight: 7} # c\n      - 127.0.0.1:2"},
		"another weight":                 {heavier, " [{address: '127.0.0.1:1', weight: 3, zone: a}]", " [{address: '127.0.0.1:1', weight: 7, zone: a}]"},
		"no weight":                      {heavier, " [{zone: a, address: 127.0.0.1:1 , backup: false}]", " [{zone: a, address: 127.0.0.1:1, weight: 7 , backup: false}]"},
		"weight in a block":              {heavier, "\n      - address: 127.0.0.1:1   # here\n        weight: 3 # why\n      - 127.0.0.1:2", "\n      - address: 127.0.0.1:1   # here\n        weight: 7 # why\n      - 127.0.0.1:2"},
		"no weight in a block":           {heavier, "\n    - zone: a\n      address: 127.0.0.1:1   # here\n    - 127.0.0.1:2", "\n    - zone: a\n      address: 127.0.0.1:1   # here\n      weight: 7\n    - 127.0.0.1:2"},
		"state":                          {drain, " [{address: 127.0.0.1:1}]", " [{address: 127.0.0.1:1, state: drain}]"},
		"ready":                          {ready, " [{address: 127.0.0.1:1, name: 127.0.0.1:1, state: drain}]", " [{address: 127.0.0.1:1, name: 127.0.0.1:1}]"},
		"ready, first":                   {ready, " [{state: drain, address: 127.0.0.1:1, zone: a}]", " [{address: 127.0.0.1:1, zone: a}]"},
		"ready, in the middle":           {ready, " [{address: 127.0.0.1:1, state: maint, zone: a,}]", " [{address: 127.0.0.1:1, zone: a,}]"},
		"ready, nothing else":            {ready, " [{address: \"127.0.0.1:1\", state: maint}] # c", " [\"127.0.0.1:1\"] # c"},
		"ready, nothing else, first":     {ready, "\n      - {state: drain, address: 127.0.0.1:1} # c", "\n      - 127.0.0.1:1 # c"},
		"ready in a block":               {ready, "\n      - address: 127.0.0.1:1 # c\n        state: drain # for a while\n        zone: a", "\n      - address: 127.0.0.1:1 # c\n        zone: a"},
		"ready in a block, first":        {ready, "\n      - state: drain\n        address: 127.0.0.1:1 # c", "\n      - address: 127.0.0.1:1 # c"},
		"ready as it is":                 {ready, " [127.0.0.1:1]", " [127.0.0.1:1]"},
		"the same weight":                {heavier, " [{address: 127.0.0.1:1, weight: 7}]", " [{address: 127.0.0.1:1, weight: 7}]"},
		"add":                            {add, ` ["127.0.0.1:1"]`, ` ["127.0.0.1:1", "127.0.0.1:9"]`},
		"add with all keys":              {addNamed, ` [{address: "127.0.0.1:1", name: "]"}]`, ` [{address: "127.0.0.1:1", name: "]"}, {address: "127.0.0.1:9", name: "n", weight: 3, zone: "z"}]`},
		"add one that drains":            {addDrained, ` ["127.0.0.1:1"]`, ` ["127.0.0.1:1", {address: "127.0.0.1:9", weight: 0, state: drain}]`},
		"add a line":                     {add, "\n      - 127.0.0.1:1\n      - address: 127.0.0.1:2\n        zone: a # c", "\n      - 127.0.0.1:1\n      - address: 127.0.0.1:2\n        zone: a # c\n      - \"127.0.0.1:9\""},
		"add a line in brackets":         {add, " [\n      127.0.0.1:1, # c\n      127.0.0.1:2, # d\n    ]", " [\n      127.0.0.1:1, # c\n      127.0.0.1:2,\n      \"127.0.0.1:9\", # d\n    ]"},
		"add a line of Windows":          {add, "\r\n      - 127.0.0.1:1\r", "\r\n      - 127.0.0.1:1\r\n      - \"127.0.0.1:9\"\r"},
		"add in brackets of Windows":     {add, " [\r\n      127.0.0.1:1,\r\n      127.0.0.1:2,\r\n    ]", " [\r\n      127.0.0.1:1,\r\n      127.0.0.1:2,\r\n      \"127.0.0.1:9\",\r\n    ]"},
		"weight in a block of Windows":   {heavier, "\r\n    - zone: a\r\n      address: 127.0.0.1:1\r", "\r\n    - zone: a\r\n      address: 127.0.0.1:1\r\n      weight: 7\r"},
		"add one that is there":          {add, " [127.0.0.1:9]", " [127.0.0.1:9]"},
		"remove the first":               {gone, " [127.0.0.1:1, 127.0.0.1:2]", " [127.0.0.1:2]"},
		"remove the last":                {gone, " [127.0.0.1:2, {address: 127.0.0.1:1}]", " [127.0.0.1:2]"},
		"remove a line":                  {gone, "\n      # before\n      - {address: 127.0.0.1:1} # c\n      # after\n      - 127.0.0.1:2", "\n      # before\n      # after\n      - 127.0.0.1:2"},
		"remove some lines":              {gone, "\n      - 127.0.0.1:2\n      - address: 127.0.0.1:1\n        weight: 3", "\n      - 127.0.0.1:2"},
		"remove one that is not there":   {gone, " [127.0.0.1:2]", " [127.0.0.1:2]"},
		"remove a line of Windows":       {gone, "\r\n      - 127.0.0.1:1\r\n      - 127.0.0.1:2", "\r\n      - 127.0.0.1:2"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "p.yaml")
			write(t, path, head+tc.before+tail)
			got, err := config.EditEndpoint(path, os.LookupEnv, &tc.edit)
			must(t, err)
			if want := head + tc.after + tail; string(got.After) != want || got.Path != path {
				t.Errorf("%s:\n%s\nwant\n%s", got.Path, got.After, want)
			}
		})
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	must(t, os.WriteFile(path, []byte(text), 0o600))
}

// TestEditsThatAreRefused: a line that stands for others, or that others stand for, is not edited, nor
// one after which the configuration would be wrong.
func TestEditsThatAreRefused(t *testing.T) {
	const head = "listeners: [{name: l, bind: \"127.0.0.1:80\", upstream: u}]\n"
	t.Setenv("WEIGHT", "3")
	heavier := &config.EndpointEdit{Upstream: "u", Endpoint: "127.0.0.1:1", Weight: weight(7)}
	for name, tc := range map[string]struct {
		edit *config.EndpointEdit
		text string
		want string
	}{
		"an anchor":        {heavier, "upstreams: [{name: u, endpoints: [&a {address: 127.0.0.1:1}]}, {name: v, endpoints: [*a]}]", ":2:35: this line cannot be edited automatically: other places may use its anchor: &a: edit it by hand"},
		"an alias":         {heavier, "x-a: &a {address: 127.0.0.1:1}\nupstreams:\n- name: u\n  endpoints:\n  - *a", ":6:5: this line cannot be edited automatically: it is written as an alias: *a: edit it by hand"},
		"a list's anchor":  {heavier, "upstreams: [{name: u, endpoints: &a [127.0.0.1:1]}, {name: v, endpoints: *a}]", ":2:34: this line cannot be edited automatically: other places may use its anchor: &a: edit"},
		"a list's alias":   {heavier, "x-a: &a [127.0.0.1:1]\nupstreams: [{name: u, endpoints: *a}]", ":3:34: this line cannot be edited automatically: it is written as an alias: *a: edit"},
		"a merge":          {heavier, "x-a: &a {endpoints: [127.0.0.1:1]}\nupstreams:\n- name: u\n  <<: *a", ":5:3: this line cannot be edited automatically: its endpoints come from another mapping: <<: edit"},
		"a merged item":    {heavier, "x-a: &a {zone: z}\nupstreams: [{name: u, endpoints: [{address: 127.0.0.1:1, <<: *a}]}]", ":3:58: this line cannot be edited automatically: it has keys of another mapping: <<: edit"},
		"a variable":       {heavier, "upstreams:\n- name: u\n  endpoints:\n  - address: 127.0.0.1:1\n    weight: \"${WEIGHT}\"", ":6:13: this line cannot be edited automatically: it has a variable: ${WEIGHT}: edit"},
		"the last one":     {&config.EndpointEdit{Upstream: "u", Endpoint: "127.0.0.1:1", Remove: true}, "upstreams: [{name: u, endpoints: [127.0.0.1:1]}]", "the only endpoint"},
		"a circle":         {&config.EndpointEdit{Upstream: "u", Add: newEndpoint(t, "127.0.0.1:80", "", "", 1)}, "upstreams: [{name: u, endpoints: [127.0.0.1:1]}]", "circle"},
		"no upstream":      {&config.EndpointEdit{Upstream: "x", Endpoint: "a", Weight: weight(1)}, "upstreams: [{name: u, endpoints: [127.0.0.1:1]}]", "no upstream x"},
		"two at one place": {heavier, "upstreams: [{name: u, endpoints: [{name: a, address: 127.0.0.1:1}, {name: b, address: 127.0.0.1:1}]}]", "several endpoints of u have the address 127.0.0.1:1 in the file: write the name of one of them"},
		"no endpoint":      {&config.EndpointEdit{Upstream: "u", Endpoint: "a", Weight: weight(1)}, "upstreams: [{name: u, endpoints: [127.0.0.1:1]}]", "no endpoint a in the upstream u. The upstream has 127.0.0.1:1"},
		"discovery":        {heavier, "upstreams: [{name: u, discover: {dns: {name: a.example}}}]", "discovered"},
		"a bad file":       {heavier, "upstreams: [{nome: u}]", "missing"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "p.yaml")
			write(t, path, head+tc.text+"\n")
			got, err := config.EditEndpoint(path, os.LookupEnv, tc.edit)
			switch {
			case err == nil:
				t.Errorf("edited:\n%s", got.After)
			case strings.Contains(tc.want, "automatically") && !errors.Is(err, config.ErrNotPlain), !strings.Contains(err.Error(), tc.want), strings.Contains(err.Error(), "\n"):
				t.Error(err)
			}
		})
	}
}

// TestEditOfAnIncludedFile: the file that has the line is edited, and JSON stays JSON.
func TestEditOfAnIncludedFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "p.yaml")
	write(t, path, "include: [\"*.json\"]\nlisteners: [{name: l, bind: \":80\", upstream: u}]\n")
	const json = `{"upstreams": [{"name": "u", "endpoints": ["127.0.0.1:1", {"address": "127.0.0.1:2"}]}]}`
	write(t, filepath.Join(dir, "u.json"), json)
	got, err := config.EditEndpoint(path, os.LookupEnv, &config.EndpointEdit{Upstream: "u", Endpoint: "127.0.0.1:2", State: config.Maint})
	must(t, err)
	if want := strings.Replace(json, `:2"}`, `:2", "state": "maint"}`, 1); string(got.After) != want || filepath.Base(got.Path) != "u.json" || string(got.Before) != json {
		t.Errorf("%s: %s, want %s", got.Path, got.After, want)
	}
	write(t, filepath.Join(dir, "u.json"), string(got.After))
	got, err = config.EditEndpoint(path, os.LookupEnv, &config.EndpointEdit{Upstream: "u", Endpoint: "127.0.0.1:2", State: config.Ready})
	must(t, err)
	if want := strings.Replace(json, `{"address": "127.0.0.1:2"}`, `"127.0.0.1:2"`, 1); string(got.After) != want {
		t.Errorf("%s, want %s", got.After, want)
	}
}

// TestEditOfAFileThatChanges: the edit is of the file as it was read, so that whoever writes it can see that it has changed.
func TestEditOfAFileThatChanges(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p.yaml")
	const text = "listeners: [{name: l, bind: \":${PORT}\", upstream: u}]\nupstreams: [{name: u, endpoints: [\"127.0.0.1:1\"]}]\n"
	write(t, path, text)
	changes := func(string) (string, bool) {
		write(t, path, "# another program's\n"+text)
		return "80", true
	}
	got, err := config.EditEndpoint(path, changes, &config.EndpointEdit{Upstream: "u", Endpoint: "127.0.0.1:1", State: config.Maint})
	must(t, err)
	if want := strings.Replace(text, `"127.0.0.1:1"`, `{address: "127.0.0.1:1", state: maint}`, 1); string(got.Before) != text || string(got.After) != want {
		t.Errorf("%s, and %s before", got.After, got.Before)
	}
}
