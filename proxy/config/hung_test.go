package config_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/testutil/hung"
	"github.com/penstock/penstock/proxy/config"
)

// TestHungDirectory: warnings about a directory on a file system that does not answer say so.
func TestHungDirectory(t *testing.T) {
	t.Parallel()

	dir := hung.Dir(t)
	path := filepath.Join(t.TempDir(), "p.yaml")
	write(t, path, "session_log: {to: "+dir+"/s.log}\nadmin: {bind: 'unix:"+dir+"/a'}"+smallest)
	hung.Mount(t, dir)
	cfg, problems := config.Load(path, variables())
	if cfg == nil || len(cfg.Warnings) != 2 {
		t.Fatalf("%v, %+v", problems, cfg)
	}
	for _, w := range cfg.Warnings {
		if text := w.Error(); !strings.Contains(text, "does not answer") || !strings.Contains(text, "wait until it answers") {
			t.Error(text)
		}
	}
}
