import java.io.BufferedReader;
import java.io.InputStreamReader;

/** Allocates as many MiB of arrays as each line of standard input says, and then prints `allocated`. */
public class Allocate {
    static volatile Object last;

    public static void main(String[] arguments) throws Exception {
        System.out.println("ready");
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            long arrays = Long.parseLong(line) * 1024;
            for (long i = 0; i < arrays; i++) {
                last = new byte[1008]; // 1 KiB with its header.
            }
            System.out.println("allocated");
        }
        System.out.println("right");
    }
}
