package nvmerdma

import "github.com/culvert-io/culvert/soft/nvme"

// Lie has the drive lie from now on; nil ends it.
func (m *Module) Lie(l *nvme.Liar) { m.liar.Store(l) }

// perform sends the command, or what a lying drive makes of it: the true blocks, and the
// others changed by the target, or not at all.
func (c *command) perform(f *file) error {
	lie, from, to, ok := c.m.liar.Load().Next(len(c.pages)*blockSize, blockSize)
	if !ok {
		return c.do(f)
	}
	from, to = from/blockSize, to/blockSize
	if err := c.part(0, from).do(f); err != nil {
		return err
	}
	if err := c.part(to, len(c.pages)).do(f); err != nil {
		return err
	}
	wrong := c.part(from, to)
	if lie == nvme.Drop || lie == nvme.Delay || to-from == 1 && lie != nvme.Transform {
		err := wrong.mapData() // as far as nvidia-fs can see
		wrong.unmapData()
		return err
	}
	f.lie(wrong.off, lie)
	return wrong.do(f)
}

// part is the command for some of the pages.
func (c *command) part(from, to int) *command {
	return &command{m: c.m, s: c.s, write: c.write, off: c.off + int64(from)*blockSize, pages: c.pages[from:to]}
}
