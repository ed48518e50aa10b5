package gpumem

// Locks returns the number of locks.
func (m *Module) Locks() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.entries)
}
