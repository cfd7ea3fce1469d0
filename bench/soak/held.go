package soak

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

const (
	pipes = "pipe"
	// spare is the file descriptor reserve, which a proxy keeps open for when other
	// descriptors are short: some of them, however many connections there were.
	spare = os.DevNull
)

// mostSpares is how many more spares there may be than before.
func mostSpares() int { return 8 + 4*runtime.NumCPU() }

// held are open descriptors, counted by kind: "socket", "pipe", "anon_inode:[eventpoll]", or a
// path.
type held map[string]int

// descriptors are those of some processes.
func descriptors(pids []int) (held, error) {
	h := make(held)
	for _, pid := range pids {
		dir := fmt.Sprintf("/proc/%d/fd", pid)
		entries, err := os.ReadDir(dir)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			to, err := os.Readlink(filepath.Join(dir, e.Name()))
			if errors.Is(err, fs.ErrNotExist) {
				continue // closed since
			}
			if err != nil {
				return nil, err
			}
			if kind, _, numbered := strings.Cut(to, ":["); numbered && kind != "anon_inode" {
				to = kind
			}
			h[to]++
		}
	}
	return h, nil
}

func (h held) sum() (n int) {
	for _, m := range h {
		n += m
	}
	return n
}

// leaks says where now differs from before, in words; idle pipes are so many more
// than before.
func (h held) leaks(now held, idle int64) (all []string) {
	kinds := maps.Clone(h)
	maps.Copy(kinds, now)
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		want, got := int64(h[kind]), int64(now[kind])
		switch {
		case kind == spare && got <= want+int64(mostSpares()):
			continue
		case kind == pipes:
			want += 2 * idle
		}
		if want != got {
			all = append(all, fmt.Sprintf("descriptors of the proxy, %s: expected %d, got %d", kind, want, got))
		}
	}
	return all
}
