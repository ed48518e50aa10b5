package nvmerdma

// Fabrics returns how the module speaks with targets.
func (m *Module) Fabrics() Fabrics { return m.cfg.Fabrics }
