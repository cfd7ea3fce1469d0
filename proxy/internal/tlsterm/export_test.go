package tlsterm

// Sources is how many files, or pairs of them, are followed.
func (f *Files) Sources() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.sources)
}

// Failures is the sum of all that failed.
func (s *Stats) Failures() (n int64) {
	for i := range s.Failed {
		n += s.Failed[i].Load()
	}
	return n
}
