package gdrcopy

// Pinned is memory of a backend.
type Pinned = pinned

// New returns a session on a backend.
func New(b backend) *Session { return newSession(b) }
