import java.util.Arrays;

/** Holds arrays of 1 MiB without zero bytes, as many as the argument says, until its input ends. */
public class Hold {
    static byte[][] kept;

    public static void main(String[] arguments) throws Exception {
        kept = new byte[Integer.parseInt(arguments[0])][];
        for (int i = 0; i < kept.length; i++) {
            kept[i] = new byte[1 << 20];
            Arrays.fill(kept[i], (byte) 1);
        }
        System.out.println("ready");
        System.in.read();
    }
}
