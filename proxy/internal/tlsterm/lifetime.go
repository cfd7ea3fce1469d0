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

// AuthoritiesRefused returns why the present contents of the file of authorities were not taken, so that the
// former ones are in use; nil: they were, or there is no such file.
func (s *Server) AuthoritiesRefused() error { return s.ca.refusal() }

// AuthoritiesRefused returns what [Server.AuthoritiesRefused] does, of the authorities that endpoints are verified by.
func (c *Client) AuthoritiesRefused() error { return c.ca.refusal() }

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
