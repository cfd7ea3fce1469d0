package tlsterm

// Sources is how many files, or pairs of them, are followed.
func (f *Files) Sources() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.sources)
}
