package tlsterm

// WithoutNotice returns Files that the kernel never notifies.
func WithoutNotice(cfg *FilesConfig) *Files {
	return newFiles(cfg, nil)
}

// Sources is how many files, or pairs of them, are followed.
func (f *Files) Sources() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.sources) + len(f.dirs)
}

// Watched lists the directories that inotify watches.
func (f *Files) Watched() []string { return f.notice.(inotify).WatchList() }
