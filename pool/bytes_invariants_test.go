//go:build invariants

package pool_test

import (
	"testing"

	"github.com/penstock/penstock/pool"
)

func TestBytesInvariants(t *testing.T) {
	for name, misuse := range map[string]func(*pool.Bytes, []byte){
		"put twice":     func(b *pool.Bytes, own []byte) { b.Put(own); b.Put(own) },
		"put, discard":  func(b *pool.Bytes, own []byte) { b.Put(own); b.Discard(own) },
		"cut to class":  func(b *pool.Bytes, own []byte) { b.Put(own[:1024:1024]) },
		"odd":           func(b *pool.Bytes, own []byte) { b.Put(own[1:]) },
		"from nowhere":  func(b *pool.Bytes, _ []byte) { b.Put(make([]byte, 4096)) },
		"never its own": func(b *pool.Bytes, _ []byte) { b.Discard(make([]byte, 1024)) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBytes(t, pool.BytesConfig{})
			own := mustGet(t, b, 4096)
			defer func() {
				if recover() == nil {
					t.Error("went unnoticed")
				}
			}()
			misuse(b, own)
		})
	}
}
