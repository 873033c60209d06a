package journal

// NetworkName names network file systems by their type number.
func NetworkName(magic uint32) string { return networkName(magic) }
