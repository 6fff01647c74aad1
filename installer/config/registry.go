package config

// RegistryPort is the TCP port at which control planes serve the bundles that they keep, and the images in them.
const RegistryPort = 7444
