package io.hugewise.services;

import static org.assertj.core.api.Assertions.assertThat;

import io.hugewise.cache.HugeCache;
import io.hugewise.cache.Serializers;
import io.hugewise.cache.WriteBack;
import io.hugewise.memory.Backing;
import io.hugewise.memory.HugeArena;
import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.lang.ref.WeakReference;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.catalina.core.StandardContext;
import org.apache.catalina.startup.Tomcat;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/// An application with the library in its own folder is deployed again and again in a running Tomcat.
@Timeout(value = 30, unit = TimeUnit.MINUTES, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class TomcatTest {
    private static final int DEPLOYMENTS = Integer.getInteger("hugewise.deployments", 2);
    private static final long SECONDS = Long.getLong("hugewise.collected", 120);

    /// The application. An even deployment closes its caches, an odd one drops them.
    public static final class Application extends HttpServlet {
        private static final long serialVersionUID = 1;

        private transient HugeCache<Long, byte[]> pages;
        private transient HugeCache<Long, byte[]> orders;

        @Override
        public void init() {
            pages = HugeCache.builder(Serializers.longs(), Serializers.bytes()).maximumBytes(4 << 20).memory(options -> options.only(Backing.base()))
                    .expireAfterWrite(Duration.ofMillis(200)).heapEntries(100).removalListener((_, _, _) -> {}).build();
            orders = HugeCache.builder(Serializers.longs(), Serializers.bytes()).maximumBytes(4 << 20).memory(options -> options.only(Backing.base()))
                    .loader(key -> new byte[key.intValue() % 1000]).refreshAfterWrite(Duration.ofMillis(1)).writeBack(WriteBack.to(_ -> {})).build();
        }

        @Override
        protected void doGet(HttpServletRequest request, HttpServletResponse response) throws IOException {
            for (long key = 0; key < 10_000; key++) {
                pages.get(key, _ -> new byte[500]);
                orders.get(key);
                orders.put(key, new byte[100]);
            }
            response.getWriter().print(pages.stats().puts());
        }

        @Override
        public void destroy() {
            if (Boolean.parseBoolean(getInitParameter("closes"))) {
                pages.close();
                orders.close();
            }
        }
    }

    /// Copies the classes of the library and the application, as a build of the application does.
    private static void build(Path application) throws IOException {
        for (Class<?> type : new Class<?>[] {HugeArena.class, HugeCache.class}) {
            Path place = Path.of(URI.create(type.getProtectionDomain().getCodeSource().getLocation().toString()));
            if (Files.isDirectory(place)) {
                copy(place, application.resolve("WEB-INF/classes"));
            } else {
                Path libraries = Files.createDirectories(application.resolve("WEB-INF/lib"));
                Files.copy(place, libraries.resolve(place.getFileName().toString()));
            }
        }
        String name = Application.class.getName().replace('.', '/') + ".class";
        Path to = application.resolve("WEB-INF/classes").resolve(name);
        Files.createDirectories(to.getParent());
        try (var bytes = Application.class.getClassLoader().getResourceAsStream(name)) {
            Files.copy(bytes, to);
        }
    }

    private static void copy(Path from, Path to) throws IOException {
        try (var files = Files.walk(from)) {
            for (Path file : (Iterable<Path>) files::iterator) {
                Path copy = to.resolve(from.relativize(file).toString());
                if (Files.isDirectory(file)) {
                    Files.createDirectories(copy);
                } else {
                    Files.copy(file, copy, StandardCopyOption.REPLACE_EXISTING);
                }
            }
        }
    }

    private static WeakReference<ClassLoader> deploy(Tomcat tomcat, Path application, boolean closes) throws Exception {
        var context = (StandardContext) tomcat.addContext("/shop", application.toString());
        var servlet = Tomcat.addServlet(context, "shop", Application.class.getName());
        servlet.setLoadOnStartup(1);
        servlet.addInitParameter("closes", "" + closes);
        servlet.addMapping("/");
        if (!context.getState().isAvailable()) {
            context.start();
        }
        assertThat(context.getState().isAvailable()).isTrue();
        ClassLoader loader = context.getLoader().getClassLoader();
        assertThat(loader.loadClass(HugeCache.class.getName())).isNotEqualTo(HugeCache.class);
        var address = URI.create("http://127.0.0.1:" + tomcat.getConnector().getLocalPort() + "/shop/");
        try (HttpClient client = HttpClient.newHttpClient()) {
            var response = client.send(HttpRequest.newBuilder(address).build(), BodyHandlers.ofString());
            assertThat(response.body()).isEqualTo("10000");
        }
        tomcat.getHost().removeChild(context);
        context.destroy();
        return new WeakReference<>(loader);
    }

    @Test
    void classLoadersOfEarlierDeploymentsAreCollected(@TempDir Path folder) throws Exception {
        Path application = Files.createDirectory(folder.resolve("shop"));
        build(application);
        var tomcat = new Tomcat();
        tomcat.setBaseDir(folder.resolve("tomcat").toString());
        tomcat.setPort(0);
        tomcat.getConnector();
        tomcat.start();
        try {
            List<WeakReference<ClassLoader>> loaders = new ArrayList<>();
            for (int i = 0; i < DEPLOYMENTS; i++) {
                loaders.add(deploy(tomcat, application, i % 2 == 0));
            }
            long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(SECONDS);
            while (loaders.stream().anyMatch(loader -> loader.get() != null) && System.nanoTime() < end) {
                System.gc();
                Thread.sleep(50);
            }
            assertThat(loaders.stream().filter(loader -> loader.get() != null)).as("class loaders that stay, of %s", DEPLOYMENTS).isEmpty();
            assertThat(Thread.getAllStackTraces().keySet()).noneMatch(thread -> thread.getName().startsWith("hugewise"));
            System.out.println("Redeployments in Tomcat: " + DEPLOYMENTS + ", all class loaders collected");
        } finally {
            tomcat.stop();
            tomcat.destroy();
        }
    }
}
