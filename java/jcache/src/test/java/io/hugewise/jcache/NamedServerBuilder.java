package io.hugewise.jcache;

import javax.management.MBeanServerBuilder;
import javax.management.MBeanServerDelegate;

/// Gives the MBean server the name by which the compatibility kit looks for it.
@SuppressWarnings("exports")
public final class NamedServerBuilder extends MBeanServerBuilder {
    /// Called by the JVM.
    public NamedServerBuilder() {}

    @Override
    public MBeanServerDelegate newMBeanServerDelegate() {
        return new MBeanServerDelegate() {
            @Override
            public String getMBeanServerId() {
                return System.getProperty("org.jsr107.tck.management.agentId");
            }
        };
    }
}
