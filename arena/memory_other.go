//go:build !linux

package arena

import "github.com/penstock/penstock/internal/feature"

type memory struct {
	bytes []byte
	pages Pages
	huge  int64
}

func place(int, []int) ([]int, error) { return nil, nil }

func mapPages(Pages, []region, int64, bool) (memory, error) {
	return memory{}, &feature.Error{Feature: "arena"}
}

func (m *memory) unmap() error { return nil }
