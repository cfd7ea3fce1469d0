//go:build !linux

package vecio

// A cork does nothing on systems where writers only call Write.
type cork struct{ corked int64 }

func (c *cork) hold()        {}
func (c *cork) draw()        {}
func (c *cork) push()        {}
func (c *cork) segment() int { return 0 }
