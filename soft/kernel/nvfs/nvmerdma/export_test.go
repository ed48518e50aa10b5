package nvmerdma

// Fabrics returns how the module speaks with targets.
func (m *Module) Fabrics() Fabrics { return m.cfg.Fabrics }

// SetFabrics changes it, for connections that are made later.
func (m *Module) SetFabrics(f Fabrics) { m.cfg.Fabrics = f }
