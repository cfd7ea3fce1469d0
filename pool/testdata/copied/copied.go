// Package copied copies a pool, which go vet must report.
package copied

import "github.com/penstock/penstock/pool"

// Copy is wrong.
func Copy(p *pool.Pool[int]) { _ = *p }
