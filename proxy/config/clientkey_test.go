package config_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/penstock/penstock/proxy/config"
)

// TestClientKeys: a property is one that there is, that the policy hashes, and that a client can have; and the values
// by which sessions are counted are few, and each is listed once.
func TestClientKeys(t *testing.T) {
	many := strings.Repeat("x%d.test, ", 65)
	numbers := make([]any, 65)
	for i := range numbers {
		numbers[i] = i
	}
	for _, c := range []struct {
		listener, upstream string
		want               []string
	}{
		{"", "balance: maglev, balance_on: sni", nil},
		{"", "balance: round_robin, balance_on: source", nil},
		{"", "balance_on: sni", []string{"balance: round_robin hashes nothing"}},
		{"", "balance: source_ip, balance_on: sni", []string{"balance: source_ip hashes the source"}},
		{"", "balance: maglev, balance_on: snj", []string{`"snj" is no property of a client: did you mean "sni"?`}},
		{"", "balance: maglev, balance_on: tlv:256", []string{"is no property of a client"}},
		{"", "balance: maglev, balance_on: tlv:0xe0", []string{"no client has a TLV"}},
		{", accept_proxy: {versions: [1]}", "balance: maglev, balance_on: tlv:0xe0", []string{"no client has a TLV"}},
		{", accept_proxy: {}", "balance: maglev, balance_on: tlv:0xe0", nil},
		{", metrics_by: {key: sni, values: [a.test, b.test]}", "", nil},
		{", metrics_by: {key: tlv:0xe0, values: [a]}", "", []string{"every session is counted as unknown"}},
		{", metrics_by: {key: source, values: [a]}", "", []string{"there is no series for a source"}},
		{", metrics_by: {key: sni}", "", []string{"values is missing"}},
		{", metrics_by: {key: sni, values: []}", "", []string{"no value has a series"}},
		{", metrics_by: {key: sni, values: [a.test, A.test]}", "", []string{`"a.test" is listed twice`}},
		{", metrics_by: {key: sni, values: [other]}", "", []string{"other is the value of other clients"}},
		{", metrics_by: {key: sni, values: [" + fmt.Sprintf(many, numbers...) + "]}", "", []string{"there are 65 values"}},
		{", metrics_by: {key: sni, values: [" + strings.Repeat("a", 256) + "]}", "", []string{"is no value"}},
	} {
		text := "listeners: [{name: a, bind: ':1', upstream: u" + c.listener + "}]\nupstreams: [{name: u, endpoints: ['h:1'], " + c.upstream + "}]"
		cfg, problems := config.LoadTree(config.Tree{"/etc/p.yaml": text}, "/etc/p.yaml", nil)
		if cfg != nil {
			problems = append(problems, cfg.Warnings...)
		}
		if len(problems) != len(c.want) || slices.ContainsFunc(problems, func(p config.Problem) bool { return !strings.Contains(p.Error(), c.want[0]) }) {
			t.Errorf("%s, %s: %v, want %v", c.listener, c.upstream, problems, c.want)
		}
	}
}
