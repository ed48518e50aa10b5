// Package registration measures by which method an adapter reaches GPU memory fastest:
// peer memory, dma-buf with PCIe addresses or the driver's own, staging. Only "culvert tune"
// measures; transfers use what it found ([Known]), or the built-in order.
package registration
