package file

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestEdit: what another program writes while a file is edited stays, whether it is written before the file is compared or
// between that and the exchange.
func TestEdit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	before, after, other := []byte("before"), []byte("after"), "other"
	save := func() error {
		return errors.Join(os.WriteFile(path+".new", []byte(other), 0o600), os.Rename(path+".new", path))
	}
	write := func() error { return os.WriteFile(path, []byte(other), 0o600) }
	early := func(change func() error) func(*Place) error {
		return func(p *Place) error { return p.Edit(before, after, func(*os.File) error { return change() }) }
	}
	late := func(change func() error) func(*Place) error {
		return func(p *Place) error {
			return p.replace(after, nil, func(temp string) error { return errors.Join(change(), p.exchange(temp, before, after)) })
		}
	}
	for name, edit := range map[string]func(*Place) error{
		"nothing": early(func() error { return nil }), "saved": early(save), "written": early(write), "saved late": late(save), "written late": late(write),
	} {
		if err := os.WriteFile(path, before, 0o600); err != nil {
			t.Fatal(err)
		}
		p, err := At(path)
		if err != nil {
			t.Fatal(err)
		}
		err = errors.Join(edit(p), p.Close())
		want := other
		if name == "nothing" {
			want = string(after)
		}
		if now, _ := os.ReadFile(path); string(now) != want || (err == nil) != (name == "nothing") || err != nil && !strings.Contains(err.Error(), "another program changed it") {
			t.Errorf("%s: it has %q, %v", name, now, err)
		}
		if list, _ := os.ReadDir(dir); len(list) != 1 {
			t.Errorf("%s: it leaves %v", name, list)
		}
	}
}
