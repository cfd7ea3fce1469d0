package state

// BeforeWrite has f be called before each write of the file.
func (s *Store) BeforeWrite(f func()) {
	s.replace = func(path string, data []byte) error {
		f()
		return replace(path, data)
	}
}
