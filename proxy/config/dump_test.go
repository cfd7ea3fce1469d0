package config_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/penstock/penstock/proxy/config"
)

// TestWhatIsPrintedLoadsTheSame: the printed configuration loads the same, as YAML and as JSON,
// wherever it is written.
func TestWhatIsPrintedLoadsTheSame(t *testing.T) {
	env := []string{"ZONE", "b", "HOST", "shop"}
	for _, text := range []string{
		smallest, whole(t),
		upstream(`endpoints: ['h:1', 'unix:/a$$b#c'], health_check: {send: "a$${b}$$$$ \0\r\n\t\x7f\u0085\u2028\ufeffä😀\"\\ # : ", expect: "x${ZONE}$$", http: {}}`),
		upstream("endpoints: ['h:1', {address: 'h:1', name: 'off', zone: '5'}], outlier_detection: off, panic_below: 0.30000000000000004, slow_start: 1ns"),
	} {
		tree := wholeTree(t)
		tree["/etc/p.yaml"] = text
		cfg := loadTree(t, tree, env...)
		for name, text := range map[string]string{"/x/p.yaml": string(cfg.YAML()), "/x/p.json": string(cfg.JSON())} {
			tree[name] = text
			again, problems := config.LoadTree(tree, name, variables(env...))
			if len(problems) > 0 {
				t.Fatalf("%s: %v\n%s", name, problems, text)
			}
			if d := cmp.Diff(cfg, again, apart); d != "" {
				t.Errorf("%s: %s", name, d)
			}
			if len(again.Warnings) != len(cfg.Warnings) {
				t.Errorf("%s: what is printed has the warnings %v, the original had %v", name, again.Warnings, cfg.Warnings)
			}
			if changes := config.Diff(cfg, again); len(changes) > 0 {
				t.Errorf("%s: %v", name, changes)
			}
			if err := config.ValidateText(text); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if strings.HasSuffix(name, "json") && !json.Valid([]byte(text)) {
				t.Errorf("this is no JSON: %s", text)
			}
		}
	}
}

// TestDefaultsArePrintedAsWritten: as the reference has them, 60s and not 1m.
func TestDefaultsArePrintedAsWritten(t *testing.T) {
	printed, looked := string(load(t, smallest).YAML()), 0
	for _, k := range config.Keys() {
		absent := strings.Contains(k.Path, ".tls.") || strings.Contains(k.Path, "accept_proxy.") || strings.Contains(k.Path, "mirror.") || strings.Contains(k.Path, "filter.") || strings.Contains(k.Path, "rewrite.") || strings.Contains(k.Path, "metrics_by.") || strings.Contains(k.Path, "bytes[].") || strings.Contains(k.Path, "tlv[].") || strings.Contains(k.Path, "discover.") || strings.Contains(k.Path, "zone_aware.") || strings.Contains(k.Path, "session_log.") || strings.HasPrefix(k.Path, "traces.")
		if k.Default == "" || k.List || k.Section || absent {
			continue
		}
		name := k.Path[strings.LastIndexByte(k.Path, '.')+1:]
		if !strings.Contains(printed, fmt.Sprintf(" %s: %s\n", name, k.Default)) && !strings.Contains(printed, fmt.Sprintf(" %s: %q\n", name, k.Default)) {
			t.Errorf("%s is not printed as %s", k.Path, k.Default)
		}
		looked++
	}
	if looked < 50 {
		t.Errorf("only %d defaults", looked)
	}
}

func TestSecretsAreNotShown(t *testing.T) {
	tree := wholeTree(t)
	cfg := loadTree(t, tree, "ZONE", "tellnobody", "HOST", "shop")
	tree["/etc/password"] = "another"
	next := loadTree(t, tree, "ZONE", "tellnobody2", "HOST", "shop")
	shown := string(cfg.YAML()) + string(cfg.JSON())
	changes := config.Diff(cfg, next)
	for _, c := range changes {
		shown += c.String()
	}
	if !strings.Contains(shown, "health_check.send changed (not shown)") || !strings.Contains(shown, `body: "${ZONE}"`) {
		t.Errorf("a secret's change is not reported: %v", changes)
	}
	for _, secret := range []string{"s3cret", "another", "t0ken", "body: \"tellnobody"} {
		if strings.Contains(shown, secret) {
			t.Errorf("%q is shown", secret)
		}
	}
}
