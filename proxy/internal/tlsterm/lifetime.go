package tlsterm

import "time"

// A Lifetime is the time for which a certificate is good.
type Lifetime struct {
	Path       string // its file
	From, Ends time.Time
	// Refused is why the present contents of the files were not taken, so that former ones are in use; nil: they were.
	Refused error
}

// Lifetimes returns those of the certificates that new handshakes are made with, without the
// intermediate ones.
func (s *Server) Lifetimes() []Lifetime {
	s.mu.Lock()
	defer s.mu.Unlock()
	return lifetimes(s.pairs...)
}

// Lifetimes returns that of the certificate that endpoints are shown; none if there is none.
func (c *Client) Lifetimes() []Lifetime {
	c.mu.Lock()
	defer c.mu.Unlock()
	return lifetimes(c.pair)
}

func lifetimes(pairs ...*source) (list []Lifetime) {
	for _, p := range pairs {
		if p == nil {
			continue
		}
		leaf := p.value.Load().cert.Leaf
		list = append(list, Lifetime{Path: p.spec.paths[0], From: leaf.NotBefore, Ends: leaf.NotAfter, Refused: p.refusal()})
	}
	return list
}
