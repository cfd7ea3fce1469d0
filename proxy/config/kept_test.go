package config_test

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/penstock/penstock/proxy/config"
)

// TestKept: a configuration that was kept as text is the same, positions included, without its files, its variables and its certificates.
func TestKept(t *testing.T) {
	t.Parallel()

	env := []string{"ZONE", "b", "HOST", "shop"}
	for _, text := range []string{smallest, whole(t), "include: [conf.d/*.yaml]\n" + smallest} {
		tree := wholeTree(t)
		tree["/etc/p.yaml"], tree["/etc/conf.d/a.yaml"] = text, "upstreams: [{name: included, endpoints: ['${HOST}:1']}]"
		cfg := loadTree(t, tree, env...)
		kept := cfg.Keep()
		clear(tree)
		again, err := kept.Load()
		if err != nil {
			t.Fatal(err)
		}
		same := cmp.Options{
			cmpopts.IgnoreFields(config.Config{}, "Warnings"), cmpopts.IgnoreUnexported(config.Config{}),
			cmpopts.EquateComparable(config.Rule{}, netip.Addr{}), cmpopts.EquateEmpty(),
		}
		if d := cmp.Diff(cfg, again, same); d != "" {
			t.Error(d)
		}
		if changes := config.Diff(cfg, again); len(changes) > 0 {
			t.Error(changes)
		}
		if again.Keep() == nil || again.Origin() != cfg.Origin() || cfg.Origin() == loadTree(t, config.Tree{"/etc/p.yaml": smallest}).Origin() {
			t.Error("it is not known as the same")
		}
	}
	if cfg, problems := config.Parse("flags", []byte(smallest), nil); cfg == nil || cfg.Keep() != nil {
		t.Errorf("a configuration without a file is kept as text: %v", problems)
	}
	if _, err := new(config.Kept).Load(); err == nil || errors.Unwrap(err) == nil {
		t.Error(err)
	}
}
