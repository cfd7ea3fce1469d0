package config_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/internal/compare"
)

// TestMirrors: a mirror leads to an upstream that there is, and that does not serve its clients itself, not
// even as a fallback; and warnings say so where it is of no use.
func TestMirrors(t *testing.T) {
	const more = `
upstreams:
  - {name: u, endpoints: ["h:1"], fallback: {upstream: f}}
  - {name: v, endpoints: ["h:2"]}
  - {name: f, endpoints: ["h:3"]}
  - {name: s, endpoints: ["h:4"], tls: {}}
`
	for _, c := range []struct {
		listener string
		want     []string
	}{
		{"upstream: u, mirror: {upstream: v, percent: 0.01, patience: 1ms}", nil},
		{"routes: [{upstream: u, mirror: {upstream: v}}]", nil},
		{"upstream: u, mirror: {upstream: w}", []string{"there is no upstream w"}},
		{"upstream: u, mirror: {percent: 5}", []string{"upstream is missing"}},
		{"upstream: u, mirror: {upstream: v, percent: 0.001}", []string{"0.001 % has more than two decimals"}},
		{"upstream: u, mirror: {upstream: v, percent: 101}", []string{"percent is 101"}},
		{"upstream: u, mirror: {upstream: v, patience: 0s}", []string{"patience is 0s"}},
		{"upstream: u, mirror: {upstream: s}", []string{"the upstream s has tls, but a mirror sends bytes unchanged"}},
		{"upstream: u, mirror: {upstream: u}", []string{"the upstream u already serves these clients: it would get their bytes twice"}},
		{"upstream: u, mirror: {upstream: f}", []string{"the upstream f already serves these clients"}},
		{"upstream: u, mirror: {upstream: u, percent: 0}", nil},
		{"routes: [{split: [{upstream: u, percent: 50}, {upstream: v, percent: 50}], mirror: {upstream: v}}]", []string{"the upstream v already serves these clients"}},
		{"upstream: u, mirror: {upstream: v}, routes: [{match: {port: 1}, upstream: v}]", []string{"the upstream v already serves these clients"}},
		{"upstream: u, mirror: {upstream: v}, routes: [{match: {port: 1}, upstream: v, mirror: {upstream: u, percent: 0}}]", nil},
		{"upstream: u, mirror: {upstream: v, compare: true}, rewrite: {direction: down, wasm: both.wasm}", []string{"the answers to these clients are rewritten"}},
		{"upstream: u, mirror: {upstream: v, compare: true}, rewrite: {direction: up, wasm: both.wasm}", nil},
		{"upstream: u, postgres: passthrough, mirror: {upstream: v}", nil},
		{"upstream: u, mirror: {upstream: v}, routes: [{match: {sni: [a.b]}, upstream: u}]", []string{"TLS is passed through: the mirror v cannot decrypt"}},
	} {
		text := "listeners: [{name: a, bind: ':1', " + c.listener + "}]" + more
		_, problems := said(text, "/etc/both.wasm", filterModule())
		problems = slices.DeleteFunc(problems, func(p config.Problem) bool { return strings.Contains(p.Error(), "no client reaches") })
		contain(t, c.listener, problems, c.want)
	}
}

// TestCompare: what is written of a comparison is checked where it is written, by the rules of package compare.
func TestCompare(t *testing.T) {
	for _, c := range []struct {
		compare string
		want    []string // place, beginning, and a part of the fix
	}{
		{"true", nil},
		{"false", nil},
		{"{}", nil},
		{"{framing: lines, mask: ['[0-9]+', {pattern: a+, name: GET}], examples: 0, redact: false}", nil},
		{"{framing: length_prefixed, width: 4, offset: 1, endian: little, includes_header: true}", nil},
		{"resp", []string{`4:14: compare must be a boolean: "resp" is not true or false`, "write true or false"}},
		{"[true]", []string{"4:14: compare must be a group of keys, not a list", "write compare: true"}},
		{"{framing: rpc}", []string{"4:24: framing \"rpc\" is unknown", "grpc"}},
		{"{framing: resp}", []string{"4:24: framing: resp of compare was removed", "write lines"}},
		{"{framing: postgres}", []string{"4:24: framing: postgres of compare was removed", "leave compare out"}},
		{"{framing: http1}", []string{"4:24: framing: http1 of compare was removed", "write bytes, with a mask"}},
		{"{framing: http2}", []string{"4:24: framing: http2 of compare was removed", "write grpc"}},
		{"{framing: length_prefixed}", []string{"4:14: the length of a message has 0 bytes", "write width: 1, 2, 4 or 8"}},
		{"{framing: length_prefixed, width: 3}", []string{"4:48: the length of a message has 3 bytes", "write width: 1, 2, 4 or 8"}},
		{"{framing: length_prefixed, width: 4, offset: 99999999}", []string{"4:59: offset is 99999999", ""}},
		{"{framing: lines, width: 4}", []string{"4:38: width has no effect with framing: lines", "leave it out, or write framing: length_prefixed"}},
		{"{endian: little}", []string{"4:23: endian has no effect with framing: bytes", "leave it out"}},
		{"{framing: lines, mask: [{name: GET}]}", []string{"4:38: a mask has either a pattern or a field", "write either pattern or field"}},
		{"{framing: lines, mask: [{pattern: x, field: y}]}", []string{"4:58: a mask has either a pattern or a field", "write either pattern or field"}},
		{"{framing: lines, mask: [a, '[']}", []string{`4:41: pattern "["`, "write a regular expression of RE2"}},
		{"{framing: lines, mask: ['a*']}", []string{`4:38: pattern "a*": it matches the empty text`, "write a pattern that needs a byte"}},
		{"{framing: lines, mask: [{field: grpc.date}]}", []string{`4:46: field "grpc.date": with framing lines`, "write lines.answer"}},
		{"{examples: 101}", []string{"4:25: examples is 101", "write 100 or less"}},
		{"{masks: [a]}", []string{`4:15: unknown key "masks"`, "mask"}},
	} {
		text := "listeners:\n- {name: a, bind: ':1', upstream: u, mirror: {\n    upstream: v,\n    compare: " + c.compare + "}}" + upstreams
		cfg, problems := config.LoadTree(config.Tree{"/etc/p.yaml": text}, "/etc/p.yaml", nil)
		switch {
		case len(c.want) == 0 && len(problems) == 0:
			if k := cfg.Listeners[0].Mirror.Comparing(); (k == nil) != (c.compare == "false") {
				t.Errorf("%s: %+v", c.compare, k)
			} else if k != nil {
				if _, err := k.Plan(); err != nil {
					t.Errorf("%s: %v", c.compare, err)
				}
			}
		case len(problems) != 1 || len(c.want) == 0:
			t.Errorf("%s: %v", c.compare, problems)
		default:
			p := short(problems[0])
			message, fix, _ := strings.Cut(p, " | ")
			if !strings.HasPrefix(message, c.want[0]) || !strings.Contains(fix, c.want[1]) {
				t.Errorf("%s: %s, want %q", c.compare, p, c.want)
			}
		}
	}
}

// TestFramings: the configuration takes the framings that there are, and its example of a mask is one.
func TestFramings(t *testing.T) {
	for _, k := range config.Keys() {
		switch k.Path {
		case "listeners[].mirror.compare.framing":
			for _, f := range compare.Framings {
				if !slices.Contains(k.Enum, f) {
					t.Errorf("the key takes %q, and not %s", k.Enum, f)
				}
			}
		case "listeners[].mirror.compare.mask[].field":
			framing, _, _ := strings.Cut(k.Example, ".")
			if _, err := compare.NewPlan(compare.Config{Framing: framing, Mask: []compare.Mask{{Field: k.Example}}}); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestSameComparison: what is compared alike goes on; true is what an empty section is, and false what none is.
func TestSameComparison(t *testing.T) {
	with := func(compare string) *config.Mirror {
		return load(t, "listeners: [{name: a, bind: ':1', upstream: u, mirror: {upstream: v, percent: 5"+compare+"}}]"+upstreams).Listeners[0].Mirror
	}
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{", compare: {framing: lines, mask: [a]}", ", compare: {framing: lines, mask: [{pattern: a}]}, patience: 2s", true},
		{", compare: {framing: lines, mask: [a]}", ", compare: {framing: lines, mask: [b]}", false},
		{", compare: {framing: lines}", ", compare: {framing: lines, redact: false}", false},
		{", compare: {framing: lines}", ", compare: {framing: lines, enabled: false}", false},
		{", compare: {framing: lines}", "", false},
		{", compare: true", ", compare: {}", true},
		{", compare: false", "", true},
	} {
		if with(c.a).SameComparison(with(c.b)) != c.same {
			t.Errorf("%q and %q: %v", c.a, c.b, !c.same)
		}
	}
}
